use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use crate::{
    AlignedBuf, Disk, EnvErrorKind, EnvResult, OpenDisk, SECTOR_BYTES,
    real::{
        self,
        device::Device,
        device_queue::DeviceQueue,
        open::{self, Cache},
        plain,
        transfer::Request,
        uring::UringDevice,
    },
    sync::oneshot,
    testing::scratch_dir,
};

const MIB: usize = 1 << 20;

fn make(bytes: usize) -> OpenDisk {
    OpenDisk { create_bytes: Some(bytes as u64), ..OpenDisk::default() }
}

#[test]
fn more_requests_than_fit_in_flight_are_all_answered() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let disk = env.open_disk(&format!("{dir}/data"), make(8 * MIB)).await.unwrap();
        let sectors = 8 * MIB / SECTOR_BYTES;
        let write =
            |i: usize| disk.write((i * SECTOR_BYTES) as u64, vec![AlignedBuf::padded_copy(&[i as u8]).freeze()]);
        let writes: Vec<_> = (0..sectors).map(write).collect();
        for write in writes {
            write.await.unwrap();
        }
        disk.flush().await.unwrap();
        for i in 0..sectors {
            assert_eq!(disk.read((i * SECTOR_BYTES) as u64, SECTOR_BYTES).await.unwrap()[0], i as u8);
        }
    });
}

#[test]
fn a_disk_file_that_was_deleted_is_told_from_one_that_was_moved() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let (path, moved) = (format!("{dir}/data"), format!("{dir}/moved"));
        let disk = env.open_disk(&path, make(MIB)).await.unwrap();
        assert_eq!(disk.deleted(), None);
        std::fs::rename(&path, &moved).unwrap();
        assert_eq!(disk.deleted(), None);
        env.remove_file(&moved).unwrap();
        assert_eq!(disk.deleted(), Some(path));
        disk.write(0, vec![vec![9; MIB].into()]).await.unwrap();
    });
}

#[test]
fn a_dropped_disk_has_finished_its_writes() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/data");
        let disk = env.open_disk(&path, make(4 * MIB)).await.unwrap();
        for i in 0..4 {
            drop(disk.write((i * MIB) as u64, vec![vec![9; MIB].into()]));
        }
        drop(disk);
        assert!(env.read_file(&path).unwrap().iter().all(|byte| *byte == 9));
    });
}

#[test]
fn a_file_that_was_cut_short_is_a_medium_error_not_a_hang() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/data");
        let disk = env.open_disk(&path, make(2 * MIB)).await.unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(MIB as u64).unwrap();
        assert_eq!(disk.read(MIB as u64, MIB).await.err().unwrap().kind, EnvErrorKind::Medium);
        let read_only = OpenDisk { read_only: true, ..OpenDisk::default() };
        let disk = env.open_disk(&path, read_only).await.unwrap();
        assert_eq!(disk.write(0, vec![vec![0; 4096].into()]).await.unwrap_err().kind, EnvErrorKind::InvalidInput);
    });
}

#[test]
fn a_failed_flush_sticks() {
    let device = Device::new("data");
    device.check_flushed().unwrap();
    device.fail_flushes();
    assert_eq!(device.check_flushed().unwrap_err().kind, EnvErrorKind::FlushFailed);
}

/// Runs requests through one way to serve a device, without a disk in front.
async fn serve_by(submit: impl Fn(Request) -> EnvResult<()>) -> Vec<u8> {
    let mut answers: VecDeque<oneshot::Receiver<EnvResult<()>>> = VecDeque::new();
    let mut write = |offset, durable, parts: Vec<Bytes>| {
        let (reply, answer) = oneshot::channel();
        submit(Request::Write { offset, parts, durable, reply }).unwrap();
        answers.push_back(answer);
    };
    write(0, false, vec![vec![1; 100].into(), vec![2; 3996].into()]);
    write(4096, true, vec![AlignedBuf::padded_copy(&[3; 8192]).freeze()]);
    write(0, false, Vec::new());
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    let (reply, flushed) = oneshot::channel();
    submit(Request::Flush { reply }).unwrap();
    flushed.await.unwrap().unwrap();
    let (reply, answer) = oneshot::channel();
    submit(Request::Read { offset: 0, len: 16384, reply }).unwrap();
    answer.await.unwrap().unwrap().to_vec()
}

#[test]
fn io_uring_and_plain_system_calls_do_the_same() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let queue = Arc::new(DeviceQueue::new("plain").unwrap());
        let (thread_queue, disk) =
            (queue.clone(), open::open(&format!("{dir}/plain"), make(MIB), Cache::PastIt).unwrap());
        let thread = std::thread::spawn(move || plain::serve(&thread_queue, &disk));
        let plain = serve_by(|request| queue.submit(request)).await;
        queue.close();
        thread.join().unwrap();
        let mut expected = vec![0; 16384];
        expected[..100].fill(1);
        expected[100..4096].fill(2);
        expected[4096..12288].fill(3);
        assert!(plain == expected);
        let disk = open::open(&format!("{dir}/uring"), make(MIB), Cache::PastIt).unwrap();
        if let Ok(device) = UringDevice::start(Device::new("uring"), disk) {
            assert!(serve_by(|request| device.submit(request)).await == expected);
            device.close();
            let (reply, _answer) = oneshot::channel();
            assert!(device.submit(Request::Flush { reply }).is_err(), "closed");
        }
    });
}

#[test]
fn a_closed_device_can_be_opened_again() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let path = format!("{dir}/data");
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
        let open = || descriptors().filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == *path)).count();
        let disk = env.open_disk(&path, make(MIB)).await.unwrap();
        drop(disk.write(0, vec![vec![9; 4096].into()]));
        assert_eq!(open(), 1);
        drop(disk);
        assert_eq!(open(), 0);
    });
}

/// Writes 256 MiB in pieces of 1 MiB, eight in flight, and prints the rate; the bound is far below any disk's.
#[test]
fn sequential_writes_at_depth_eight_reach_the_disks_rate() {
    real::run(|env| async move {
        let dir = scratch_dir(&env);
        let disk = env.open_disk(&format!("{dir}/data"), make(256 * MIB)).await.unwrap();
        let piece = AlignedBuf::padded_copy(&vec![5; MIB]).freeze();
        for round in 0..2 {
            let start = env.now();
            write_all(&disk, &piece, 256).await;
            let rate = 256.0 / env.now().since(start).as_secs_f64();
            println!("round {round}: {rate:.0} MiB/s");
            assert!(rate > 1.0);
        }
    });
}

async fn write_all(disk: &Disk, piece: &Bytes, pieces: usize) {
    let mut in_flight = VecDeque::new();
    for i in 0..pieces {
        if in_flight.len() == 8 {
            let first: std::pin::Pin<Box<dyn Future<Output = EnvResult<()>>>> = in_flight.pop_front().unwrap();
            first.await.unwrap();
        }
        in_flight.push_back(Box::pin(disk.write((i * MIB) as u64, vec![piece.clone()])));
    }
    for write in in_flight {
        write.await.unwrap();
    }
}
