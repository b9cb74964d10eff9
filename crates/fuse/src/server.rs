//! What answers the kernel's requests, on the client's shard.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use forebay_client::{Attr, Client, ClientResult, OpenFile};
use forebay_env::Env;
use forebay_proto::{Errno, Fid};
use fuser::{FileAttr, FileHandle};

use crate::{convert, directories::Directory};

/// One mount's state: its handles.
pub(crate) struct Server {
    pub env: Env,
    pub client: Client,
    files: RefCell<BTreeMap<u64, Rc<Open>>>,
    directories: RefCell<BTreeMap<u64, Rc<Directory>>>,
    next_directory: Cell<u64>,
}

/// An open file of the kernel's.
pub(crate) struct Open {
    pub file: OpenFile,
    /// It had set-id bits when it was opened: the first write by an ordinary user drops them.
    pub has_set_ids: Cell<bool>,
}

impl Server {
    pub fn new(env: &Env, client: &Client) -> Self {
        Self {
            env: env.clone(),
            client: client.clone(),
            files: RefCell::default(),
            directories: RefCell::default(),
            next_directory: Cell::new(1),
        }
    }

    /// The fid of an inode number. Nothing has to be remembered for it, however many the kernel knows, nor after a restart:
    /// names all live on MDT0000, whose fids are their low word.
    pub fn fid(&self, ino: u64) -> Fid {
        Fid { high: 0, low: ino }
    }

    /// Attributes as the kernel wants them.
    pub fn entry(&self, attr: &Attr) -> FileAttr {
        convert::file_attr(attr)
    }

    pub fn add_file(&self, file: OpenFile) -> FileHandle {
        let handle = file.handle();
        let has_set_ids = convert::without_set_ids(file.permissions()) != file.permissions();
        let open = Open { file, has_set_ids: Cell::new(has_set_ids) };
        self.files.borrow_mut().insert(handle, Rc::new(open));
        FileHandle(handle)
    }

    pub fn file(&self, handle: FileHandle) -> ClientResult<Rc<Open>> {
        Ok(self.files.borrow().get(&handle.0).cloned().ok_or(Errno::EBADF)?)
    }

    pub fn take_file(&self, handle: FileHandle) -> ClientResult<Rc<Open>> {
        Ok(self.files.borrow_mut().remove(&handle.0).ok_or(Errno::EBADF)?)
    }

    pub fn add_directory(&self, directory: Directory) -> FileHandle {
        let handle = self.next_directory.get();
        self.next_directory.set(handle + 1);
        self.directories.borrow_mut().insert(handle, Rc::new(directory));
        FileHandle(handle)
    }

    pub fn directory(&self, handle: FileHandle) -> ClientResult<Rc<Directory>> {
        Ok(self.directories.borrow().get(&handle.0).cloned().ok_or(Errno::EBADF)?)
    }

    pub fn drop_directory(&self, handle: FileHandle) {
        self.directories.borrow_mut().remove(&handle.0);
    }
}
