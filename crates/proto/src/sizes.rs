//! Numbers of bytes as users write them.

/// Parses a number of bytes: `64MiB`, `64M` (the same), `64MB` (decimal), `47008`. `None`: not such a number, or more
/// than 64 bits.
pub fn parse_size(value: &str) -> Option<u64> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let unit = unit.to_ascii_uppercase();
    let power = match unit.bytes().next().filter(|_| unit != "B") {
        None => 0,
        Some(prefix) => 1 + b"KMGT".iter().position(|known| *known == prefix)? as u32,
    };
    let base: u64 = match unit.get(1..).unwrap_or("") {
        "" | "IB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(base.pow(power))
}
