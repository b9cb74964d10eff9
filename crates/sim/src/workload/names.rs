//! Operations on names, and listings.

use std::collections::BTreeMap;

use forebay_client::{OpenMode, SetAttributes, SetTime};
use forebay_proto::Errno;

use super::{NAMES, Outcome, Runner, caller, layouts};
use crate::{
    model::{FileModel, Node},
    stop::Stop,
};

impl Runner {
    pub(super) async fn create(&mut self) -> Outcome {
        if self.me.borrow().names.count() >= NAMES {
            return self.unlink().await;
        }
        let path = self.new_path("f");
        let id = self.me.borrow_mut().number();
        let (dir, name) = self.parent(&path).await?;
        let layout = layouts::some_layout(&mut self.dice);
        let client = self.client.clone();
        let ahead = self.dice.below(2) == 0;
        let request = async {
            let mode = OpenMode::READ_WRITE;
            let answered = ahead.then(|| client.create_delayed(&caller(), dir, name.as_bytes(), 0o644, mode)).flatten();
            if let Some(answered) = answered {
                return Ok(answered);
            }
            let made = client.create(&caller(), dir, name.as_bytes(), 0o644, mode, layout).await;
            made.map(|(attr, file)| (attr, file.into()))
        };
        let key = path.clone();
        self.say(&format!("create {path}, ahead: {ahead}"));
        let made = self.change_names(move |names| drop(names.insert(key.clone(), Node::File(id))), request).await?;
        let Some((attr, coming)) = made else { return Ok(()) };
        {
            let mut me = self.me.borrow_mut();
            me.files.insert(id, FileModel::default());
            me.fids.insert(attr.fid, id);
        }
        if self.dice.below(2) == 0 {
            self.write_early(&coming, id);
        }
        if self.dice.below(4) == 0 {
            // The attributes that tar sets. The client sends them with the close, or before it.
            let (mtime, mode) = (Some(SetTime::At(77)), Some(0o600));
            let changes = SetAttributes { mtime, mode, ..SetAttributes::default() };
            let set = self.client.setattr(&caller(), attr.fid, changes, None).await;
            self.allow(set)?;
        }
        if self.dice.below(6) == 0 {
            return Ok(());
        }
        let Some(file) = self.allow(coming.file().await)? else { return Ok(()) };
        if self.dice.below(3) > 0 {
            self.write_at(&file, id, 0).await?;
        }
        self.done_with(file, true).await
    }

    pub(super) async fn rename(&mut self) -> Outcome {
        let Some((from, id)) = self.random_file() else { return Ok(()) };
        let over = if self.dice.below(3) == 0 { self.random_file() } else { None };
        let to = match over {
            Some((path, _)) => path,
            None => self.new_path("r"),
        };
        if self.me.borrow().names.current().get(&to) == Some(&Node::File(id)) {
            return Ok(());
        }
        let (from_dir, from_name) = self.parent(&from).await?;
        let (to_dir, to_name) = self.parent(&to).await?;
        let client = self.client.clone();
        let request =
            async { client.rename(&caller(), (from_dir, from_name.as_bytes()), (to_dir, to_name.as_bytes()), 0).await };
        self.say(&format!("rename {from} to {to}"));
        let (old, new) = (from.clone(), to.clone());
        let change = move |names: &mut BTreeMap<String, Node>| {
            if let Some(node) = names.remove(&old) {
                names.insert(new.clone(), node);
            }
        };
        self.change_names(change, request).await?;
        Ok(())
    }

    pub(super) async fn link(&mut self) -> Outcome {
        if self.me.borrow().names.count() >= NAMES {
            return Ok(());
        }
        let Some((from, id)) = self.random_file() else { return Ok(()) };
        let to = self.new_path("l");
        let fid = self.fid(&from).await?;
        let (dir, name) = self.parent(&to).await?;
        let client = self.client.clone();
        self.say(&format!("link {from} as {to}"));
        let request = async { client.link(&caller(), fid, dir, name.as_bytes()).await };
        let key = to.clone();
        self.change_names(move |names| drop(names.insert(key.clone(), Node::File(id))), request).await?;
        Ok(())
    }

    pub(super) async fn unlink(&mut self) -> Outcome {
        let paths = self.me.borrow().paths(|node| matches!(node, Node::File(_) | Node::Symlink(_)));
        let Some(path) = self.dice.pick(&paths).cloned() else { return Ok(()) };
        let (dir, name) = self.parent(&path).await?;
        let client = self.client.clone();
        self.say(&format!("unlink {path}"));
        let request = async { client.unlink(&caller(), dir, name.as_bytes()).await };
        let key = path.clone();
        self.delete_names(move |names| drop(names.remove(&key)), request).await?;
        Ok(())
    }

    pub(super) async fn mkdir(&mut self) -> Outcome {
        if self.me.borrow().paths(|node| *node == Node::Dir).len() >= 5 {
            return Ok(());
        }
        let path = self.new_path("d");
        let (dir, name) = self.parent(&path).await?;
        let client = self.client.clone();
        let request = async { client.mkdir(&caller(), dir, name.as_bytes(), 0o755).await };
        let key = path.clone();
        self.change_names(move |names| drop(names.insert(key.clone(), Node::Dir)), request).await?;
        Ok(())
    }

    pub(super) async fn rmdir(&mut self) -> Outcome {
        let dirs = self.me.borrow().paths(|node| *node == Node::Dir);
        let Some(path) = self.dice.pick(&dirs).cloned() else { return Ok(()) };
        let (dir, name) = self.parent(&path).await?;
        if !self.me.borrow().names.children(&path).is_empty() {
            return match self.client.rmdir(&caller(), dir, name.as_bytes()).await {
                Err(e) if e.errno == Errno::ENOTEMPTY => Ok(()),
                Err(e) => self.allow::<()>(Err(e)).map(drop),
                Ok(()) => Err(Stop::Names(format!("rmdir of {path}, which is not empty, succeeded"))),
            };
        }
        let client = self.client.clone();
        let request = async { client.rmdir(&caller(), dir, name.as_bytes()).await };
        let key = path.clone();
        self.delete_names(move |names| drop(names.remove(&key)), request).await?;
        Ok(())
    }

    pub(super) async fn symlink(&mut self) -> Outcome {
        if self.me.borrow().names.count() >= NAMES {
            return Ok(());
        }
        let path = self.new_path("s");
        let target = format!("../somewhere/{}", self.dice.below(1000));
        let (dir, name) = self.parent(&path).await?;
        let client = self.client.clone();
        let request = async { client.symlink(&caller(), dir, name.as_bytes(), target.as_bytes()).await };
        let (key, node) = (path.clone(), Node::Symlink(target.clone()));
        self.change_names(move |names| drop(names.insert(key.clone(), node.clone())), request).await?;
        Ok(())
    }

    pub(super) async fn list(&mut self) -> Outcome {
        let dir = self.random_dir();
        let fid = if dir.is_empty() { self.home } else { self.fid(&dir).await? };
        let mut seen = Vec::new();
        let mut cookie = 0;
        loop {
            let page = self.client.readdir(fid, cookie, 600, false).await;
            let Some(page) = self.allow(page)? else { return Ok(()) };
            for entry in &page.entries {
                cookie = entry.cookie;
                if &entry.name[..] != b"." && &entry.name[..] != b".." {
                    seen.push(String::from_utf8_lossy(&entry.name).into_owned());
                }
            }
            if page.end {
                break;
            }
        }
        seen.sort();
        let expected = self.me.borrow().names.children(&dir);
        if seen == expected {
            Ok(())
        } else {
            Err(Stop::Names(format!("listing of '{dir}' is {seen:?}, expected {expected:?}")))
        }
    }
}
