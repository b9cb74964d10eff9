//! docs/protocol.md is a witness: it names every operation with its number and class, and every error above 1000.

use forebay_proto::{Errno, message::Op};

const PAGE: &str = include_str!("../../../docs/protocol.md");

#[test]
fn every_operation_is_on_the_page_with_its_number_and_class() {
    for op in (0..=u16::MAX).filter_map(Op::from_number) {
        let row = format!("| {} | **{}** ", op as u16, op.name());
        let line = PAGE.lines().find(|l| l.starts_with(&row)).unwrap_or_else(|| panic!("no line begins with {row}"));
        assert!(line.contains(&format!("| {:?} |", op.class())), "{line}");
    }
}

#[test]
fn every_error_of_the_client_library_is_on_the_page() {
    for errno in (1001..2000).map(Errno).filter(|e| e.name() != "E?") {
        assert!(PAGE.contains(&format!("| {} | {} |", errno.0, errno.name())), "{errno:?}");
    }
}
