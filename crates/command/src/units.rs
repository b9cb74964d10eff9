//! Sizes such as `64MiB` and times such as `5s`: parsed from arguments, shown in reports.

use std::time::Duration;

/// Bytes of a MiB, for rates.
pub const MIB: f64 = (1 << 20) as f64;
/// Bytes of a GiB, for CPU costs.
pub const GIB: f64 = (1 << 30) as f64;

/// `64MiB`, `64M` (the same), `64MB` (decimal), `47008`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is not a size, or more than 64 bits of bytes; write it as 47008, 64KiB, 1MiB or 2GiB");
    forebay_proto::parse_size(text).ok_or_else(wrong)
}

/// A size that is not zero.
pub fn parse_positive_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("it must be more than 0".into()),
        bytes => Ok(bytes),
    }
}

/// `10M`, `100k`, `1000`: a number of things, in thousands and millions.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a number; write it as 1000, 100k or 10M");
    let (digits, unit) = split_number(text);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

/// `5s`, `200ms`, `2m`, `1h`, `90d`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time; write it as 5s, 200ms, 2m, 1h or 90d");
    let (digits, unit) = split_number(text);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let ms_per_unit = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(ms_per_unit).map(Duration::from_millis).ok_or_else(wrong)
}

/// Writes a time that [`parse_duration`] can parse, in the largest unit in which it is a whole number.
pub fn write_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let fits = units.into_iter().find(|(_, ms_per_unit)| ms > 0 && ms.is_multiple_of(*ms_per_unit));
    fits.map_or(format!("{ms}ms"), |(unit, ms_per_unit)| format!("{}{unit}", ms / ms_per_unit))
}

/// How long it is from `now_ns` until `until_ns`, for a person: in whole days, hours or minutes, whichever it has.
pub fn write_left(now_ns: i64, until_ns: i64) -> String {
    let seconds = until_ns.saturating_sub(now_ns).max(0) as u64 / 1_000_000_000;
    match seconds {
        0..60 => write_duration(Duration::from_secs(seconds)),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..172_800 => "1 day".into(),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// `512 MiB`, `1.5 GiB`, `47,008 B`: for people.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 || (bytes < 1 << 20 && !bytes.is_multiple_of(1024)) {
        return format!("{} B", show_count(bytes));
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value.fract() < 0.05 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `51,931`.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `2.4 s`, `13 ms`.
pub fn show_seconds(seconds: f64) -> String {
    if seconds >= 100.0 {
        format!("{seconds:.0} s")
    } else if seconds >= 1.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} ms", seconds * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_unless_they_say_otherwise() {
        for (text, bytes) in
            [("0", 0), ("47008", 47008), ("64MiB", 64 << 20), ("64m", 64 << 20), ("1MB", 1_000_000), ("2T", 2 << 40)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_left_is_said_in_days_hours_or_minutes() {
        let second = 1_000_000_000;
        let left = |seconds: i64| write_left(5 * second, (5 + seconds) * second);
        assert_eq!(
            [left(59), left(119), left(3600), left(7199), left(86_400), left(172_799), left(172_800)].join(" "),
            "59s 1m 1h 1h 1 day 1 day 2 days"
        );
        assert_eq!(left(-9), "0ms");
        assert_eq!(parse_duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
    }

    #[test]
    fn wrong_sizes_say_how_to_write_one() {
        for text in ["", "MiB", "-1", "1.5GiB", "5 s", "7Q", "99999999999T", "99999999999999999999"] {
            let words = parse_size(text).expect_err(text);
            assert!(words.contains("MiB") || words.contains("64 bits"), "{text}: {words}");
        }
        assert!(parse_positive_size("0").is_err());
    }

    #[test]
    fn counts_come_in_thousands_and_millions() {
        for (text, count) in [("7", 7), ("100k", 100_000), ("10M", 10_000_000)] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        assert!(parse_count("10Mi").is_err() && parse_count("").is_err());
    }

    #[test]
    fn times_have_units_and_a_bare_number_is_seconds() {
        for (text, ms) in [("5s", 5000), ("5", 5000), ("200ms", 200), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["5s", "200ms", "90s", "2m", "1h", "0ms"] {
            assert_eq!(parse_duration(text).map(write_duration).as_deref(), Ok(text));
        }
        for text in ["", "s", "5x", "5MiB", "1.5s"] {
            assert!(parse_duration(text).expect_err(text).contains("5s"), "{text}");
        }
    }

    #[test]
    fn sizes_and_counts_are_shown_as_people_write_them() {
        assert_eq!(show_bytes(512 << 20), "512 MiB");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
        assert_eq!(show_bytes(47_008), "47,008 B");
        assert_eq!(show_bytes(64 << 10), "64 KiB");
        assert_eq!(show_count(51_931), "51,931");
        assert_eq!(show_count(7), "7");
        assert_eq!(show_seconds(0.0132), "13 ms");
        assert_eq!(show_seconds(2.44), "2.4 s");
    }
}
