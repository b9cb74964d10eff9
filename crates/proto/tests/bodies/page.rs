//! docs/protocol.md is sufficient to read every golden body: its tables name all fields, their types and their order.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_proto::{Decode, Fid, Reader, TargetId, Uuid, WriteId, limits, message::Op};

use crate::{golden, sample::Samples};

const PAGE: &str = include_str!("../../../../docs/protocol.md");
const LIMITS: &str = include_str!("../../src/limits.rs");

/// Names and values of limits, as `{:?}` prints them.
macro_rules! values {
    ($($name:ident)*) => { [$((stringify!($name), format!("{:?}", limits::$name))),*] };
}

/// Fields of every structure in the page's tables: name and type.
struct Page(BTreeMap<&'static str, Vec<(&'static str, &'static str)>>);

impl Page {
    fn read() -> Self {
        let mut structures = BTreeMap::new();
        for line in PAGE.lines().filter_map(|l| l.strip_prefix("| ")) {
            let cells: Vec<&str> = line.trim_end_matches(" |").split(" | ").collect();
            let (name, list) = match cells[..] {
                [_, _, _, request, _] if request.starts_with('`') => request.split_once(": ").expect("name: fields"),
                [name, list] if name.starts_with('`') => (name, list),
                _ => continue,
            };
            let field = |f: &'static str| f.split_once(' ').unwrap_or_else(|| panic!("{name}: not a field: {f}"));
            let fields = list.split(", ").filter(|f| *f != "-").map(field).collect();
            let name = name.trim_matches('`');
            assert!(structures.insert(name, fields).is_none(), "{name} is on the page twice");
        }
        Self(structures)
    }

    /// Reads a value of the page's type `name`; returns it as `{:?}` prints it.
    fn words(&self, name: &str, r: &mut Reader<'_>) -> String {
        if let Some(member) = generic(name, "Vec") {
            let count = r.u32().unwrap();
            let members: Vec<String> = (0..count).map(|_| self.words(member, r)).collect();
            return format!("[{}]", members.join(", "));
        }
        if let Some(member) = generic(name, "Option") {
            return if r.u8().unwrap() == 1 { format!("Some({})", self.words(member, r)) } else { "None".into() };
        }
        match name {
            "u8" => r.u8().unwrap().to_string(),
            "u16" => r.u16().unwrap().to_string(),
            "u32" => r.u32().unwrap().to_string(),
            "u64" => r.u64().unwrap().to_string(),
            "i64" => r.i64().unwrap().to_string(),
            "bool" => (r.u8().unwrap() == 1).to_string(),
            "String" => format!("{:?}", String::from_utf8(r.blob().unwrap().to_vec()).unwrap()),
            "Bytes" => format!("{:?}", Bytes::copy_from_slice(r.blob().unwrap())),
            "Uuid" | "ClientId" => format!("{:?}", Uuid(r.array().unwrap())),
            "Fid" => format!("{:?}", Fid { high: r.u64().unwrap(), low: r.u64().unwrap() }),
            "WriteId" => format!("{:?}", WriteId { client: r.u64().unwrap(), sequence: r.u64().unwrap() }),
            "TargetId" => format!("{:?}", TargetId::decode(r).unwrap()),
            "SessionId" | "Transno" | "FidSequence" => format!("{name}({})", r.u64().unwrap()),
            "Incarnation" => format!("{name}({})", r.u32().unwrap()),
            "Layout" => {
                let mut body = r.prefixed().unwrap();
                assert_eq!(body.u8(), Ok(1), "a layout's kind");
                let fields = ["generation u32", "objects Option<Fid>", "components Vec<Component>", "former Vec<u32>"];
                let fields: Vec<(&str, &str)> = fields.iter().filter_map(|field| field.split_once(' ')).collect();
                self.fields(name, &fields, body)
            }
            _ => {
                let fields = self.0.get(name).unwrap_or_else(|| panic!("{name} is not on the page"));
                self.fields(name, fields, r.prefixed().unwrap())
            }
        }
    }

    fn fields(&self, name: &str, fields: &[(&str, &str)], mut r: Reader<'_>) -> String {
        let words = fields.iter().map(|(field, type_name)| format!("{field}: {}", self.words(type_name, &mut r)));
        let words: Vec<String> = words.collect();
        assert!(r.is_empty(), "{name} has bytes that the page does not name");
        if words.is_empty() { name.to_owned() } else { format!("{name} {{ {} }}", words.join(", ")) }
    }
}

fn generic<'a>(name: &'a str, outer: &str) -> Option<&'a str> {
    name.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')
}

#[test]
fn every_golden_body_can_be_read_by_the_page_alone() {
    let (page, golden) = (Page::read(), golden::bodies());
    for (name, sample) in Samples::all().bodies.iter().filter(|(name, _)| *name != "ErrorReply") {
        let structure = name.split(' ').next().expect("a name");
        let mut r = Reader::new(&golden[name.as_str()]);
        assert_eq!(page.words(structure, &mut r), sample.words);
        assert!(r.is_empty(), "{name} has bytes that the page does not name");
    }
}

#[test]
fn every_operation_has_the_request_and_the_reply_of_the_page() {
    for (op, request, reply) in Samples::all().operations {
        let row = format!("| {} | **{}** ", op as u16, op.name());
        let line = PAGE.lines().find(|l| l.starts_with(&row)).unwrap_or_else(|| panic!("no line begins with {row}"));
        let types = format!("| `{request}`: ");
        assert!(line.contains(&types) && line.ends_with(&format!("| `{reply}` |")), "{request} -> {reply}: {line}");
    }
}

#[test]
fn operations_stand_on_the_page_in_the_order_of_their_numbers() {
    let row = |op: Op| PAGE.find(&format!("| {} | **{}** ", op as u16, op.name())).expect("a row");
    let rows: Vec<usize> = (0..=u16::MAX).filter_map(Op::from_number).map(row).collect();
    assert!(rows.is_sorted());
}

#[test]
fn every_limit_is_on_the_page_with_its_value() {
    let values = values!(NAME_BYTES SYMLINK_BYTES XATTR_BYTES XATTRS_BYTES INLINE_BYTES LINKS BULK_BYTES BODY_BYTES BLOCK_BYTES
        HOLE_BYTES FILE_BYTES PUNCH_BYTES STRIPE_BYTES_MIN STRIPES COMPONENTS POOL_NAME_BYTES SLOTS OPEN_FILES
        LEASE_CLIENT_TERM LEASE_TERM RECALLS OBJECT_PIECES CLAIM_PIECES);
    let names = LIMITS.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'));
    let names: Vec<&str> = names.map(|(name, _)| name).collect();
    assert_eq!(values.each_ref().map(|(name, _)| *name)[..], names);
    for (name, value) in values {
        let row = format!("| `{name}` | ");
        let cells =
            PAGE.lines().find_map(|line| line.strip_prefix(&row)).unwrap_or_else(|| panic!("no row for {name}"));
        assert_eq!(cells.split(" |").next().expect("a value").replace([',', ' '], ""), value, "{name}");
    }
}
