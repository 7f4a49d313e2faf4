//! What kinds of value settings have: their units, how text becomes a value and how a value is shown.
//!
//! Imports nothing but the settings' own types. Every source (files, variables, flags) writes values in
//! the same way, so all of them meet in [`Kind::parse`]. A new kind is a variant of [`Kind`].

use std::path::PathBuf;
use std::time::Duration;

use super::settings::{AgentMode, Install, Network, Replay, Status, Updates};
use super::{Environment, Secret};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The shortest time a setting can name; nothing is shown in smaller units.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest time a setting can name: anything beyond is a mistake, and arithmetic on it might overflow.
const LONGEST: Duration = Duration::from_hours(30 * 24);

/// The value of one setting, whatever its field's type.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not set, or no limit.
    Unset,
    /// Text, a path or the name of a choice.
    Text(String),
    /// A key or token.
    Secret(Secret),
    /// Yes or no.
    Flag(bool),
    /// A count, or bytes.
    Count(u64),
    /// A number with a fraction.
    Number(f64),
    /// A time.
    Time(Duration),
}

/// What values a setting takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Any text but the empty one.
    Text,
    /// A key or token: never from a file or a flag.
    Secret,
    /// A path; `~/` is the home directory.
    Path,
    /// An `http` or `https` URL without user and password.
    Url,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A number.
    Number {
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
    /// Bytes, with a unit or without.
    Size {
        /// The smallest.
        min: u64,
    },
    /// A time, in seconds unless it has a unit.
    Time {
        /// Whether it may be `none`: no limit.
        none: bool,
    },
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A `tracing` filter.
    Filter,
}

impl Kind {
    /// Reads a value; what is wrong with it otherwise, to be put after "is not valid: ".
    pub(crate) fn parse(self, text: &str, environment: &Environment) -> Result<Value, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("it is empty; it takes {}", self.accepts()));
        }
        if text.contains('\0') {
            return Err("it contains a NUL character".to_owned());
        }
        let wrong = || format!("it takes {}", self.accepts());
        match self {
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Secret => Ok(Value::Secret(Secret::new(text))),
            Kind::Path => match (text.strip_prefix("~/"), environment.home()) {
                (Some(rest), Some(home)) => match home.join(rest).into_os_string().into_string() {
                    Ok(path) => Ok(Value::Text(path)),
                    Err(_) => Err("the home directory's name is not Unicode".to_owned()),
                },
                (Some(_), None) => Err("it begins with ~/ but HOME is not set".to_owned()),
                (None, _) => Ok(Value::Text(text.to_owned())),
            },
            Kind::Url => url(text).map(Value::Text),
            Kind::Flag => match text {
                "true" => Ok(Value::Flag(true)),
                "false" => Ok(Value::Flag(false)),
                _ => Err(wrong()),
            },
            Kind::Count { min, max } => match text.parse::<u64>() {
                Ok(count) if (min..=max).contains(&count) => Ok(Value::Count(count)),
                _ => Err(wrong()),
            },
            Kind::Number { min, max } => match text.parse::<f64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
                _ => Err(wrong()),
            },
            Kind::Size { min } => match size(text) {
                Some(bytes) if bytes >= min => Ok(Value::Count(bytes)),
                _ => Err(wrong()),
            },
            Kind::Time { none: true } if text == "none" => Ok(Value::Unset),
            Kind::Time { .. } => match time(text) {
                Some(time) if time >= SHORTEST && time <= LONGEST => Ok(Value::Time(time)),
                _ => Err(wrong()),
            },
            Kind::Choice(names) if names.contains(&text) => Ok(Value::Text(text.to_owned())),
            Kind::Choice(_) => Err(wrong()),
            Kind::Filter => match tracing_subscriber::EnvFilter::try_new(text) {
                Ok(_) => Ok(Value::Text(text.to_owned())),
                Err(why) => Err(format!("{why}; it takes {}", self.accepts())),
            },
        }
    }

    /// What was written, for a message that says it is wrong: without what nobody else may read.
    pub(crate) fn quoted(self, text: &str) -> String {
        match self {
            Kind::Secret => "(hidden)".to_owned(),
            // User and password stand before the last `@`.
            Kind::Url => match text.rsplit_once('@') {
                Some((before, host)) => {
                    let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
                    format!("{scheme}://(hidden)@{host}")
                }
                None => text.to_owned(),
            },
            _ => text.to_owned(),
        }
    }

    /// What it takes, in words.
    pub fn accepts(self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
            Kind::Secret => "a key".to_owned(),
            Kind::Path => "a path (`~/` is the home directory)".to_owned(),
            Kind::Url => "an http or https URL such as `http://localhost:8000/v1`".to_owned(),
            Kind::Flag => "`true` or `false`".to_owned(),
            Kind::Count { min, max: u64::MAX } => format!("a whole number, at least {min}"),
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Size { min: 0 } => "a size such as `256m` or `1g`, or a number of bytes".to_owned(),
            Kind::Size { min } => {
                format!("a size such as `256m` or `1g`, or a number of bytes, at least `{}`", show_size(min))
            }
            Kind::Time { none } => format!(
                "a time such as `60`, `90s`, `5m` or `500ms` (seconds without a unit, at most 30 days{})",
                if none { "; `none` for no limit" } else { "" }
            ),
            Kind::Choice(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                match names.split_last() {
                    Some((last, [])) => last.clone(),
                    Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
                    None => String::new(),
                }
            }
            Kind::Filter => "a log filter such as `warn` or `cellblock=debug`".to_owned(),
        }
    }

    /// A value as it would be written in a settings file, without quotes.
    pub fn show(self, value: &Value) -> String {
        match value {
            Value::Unset if matches!(self, Kind::Time { none: true }) => "none".to_owned(),
            Value::Unset => "(not set)".to_owned(),
            Value::Text(text) => super::origin::plain(text),
            Value::Secret(_) => "(hidden)".to_owned(),
            Value::Flag(flag) => flag.to_string(),
            Value::Count(bytes) if matches!(self, Kind::Size { .. }) => show_size(*bytes),
            Value::Count(count) => count.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Time(time) => show_time(*time),
        }
    }
}

/// `256m`, `1.5g`, `1024`, `1GiB`: powers of 1024.
fn size(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => TIB,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        // The engine counts in signed 64-bit integers.
        return whole.checked_mul(unit).filter(|bytes| i64::try_from(*bytes).is_ok());
    }
    let bytes = number.parse::<f64>().ok()? * to_f64(unit);
    // Fractions of a byte mean nothing; 2^62 is far above any real size and exact in both types.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    (unit > 1 && (0.0..4.6e18).contains(&bytes)).then_some(bytes as u64)
}

#[allow(clippy::cast_precision_loss, reason = "units are powers of two, which are exact")]
fn to_f64(unit: u64) -> f64 {
    unit as f64
}

/// `60`, `90s`, `5m`, `2h`, `500ms`, `1.5`.
fn time(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

fn show_size(bytes: u64) -> String {
    for (unit, name) in [(TIB, "t"), (GIB, "g"), (MIB, "m"), (KIB, "k")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

fn show_time(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}

/// An address that requests can be sent to. User and password in it would end up in logs and notebooks.
fn url(text: &str) -> Result<String, String> {
    let wrong = || format!("it takes {}", Kind::Url.accepts());
    let uri: http::Uri = text.parse().map_err(|_| wrong())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(wrong());
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err("it contains a user or password; put keys in CELLBLOCK_MODEL__API_KEY".to_owned());
    }
    if text.contains(['?', '#']) {
        return Err("it has a query or a fragment; the path of a request is put after it".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A field of the settings: how its value goes in and out.
pub(crate) trait Field: Sized {
    /// The field's value.
    fn to_value(&self) -> Value;
    /// The field for a value; `None` when the value is of another type.
    fn from_value(value: Value) -> Option<Self>;
}

/// A type that one variant of [`Value`] carries as it is.
macro_rules! field {
    ($type:ty, $variant:ident) => {
        impl Field for $type {
            fn to_value(&self) -> Value {
                Value::$variant(self.clone())
            }
            fn from_value(value: Value) -> Option<Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }
        }
    };
}

field!(String, Text);
field!(Secret, Secret);
field!(bool, Flag);
field!(u64, Count);
field!(f64, Number);
field!(Duration, Time);

impl Field for i64 {
    fn to_value(&self) -> Value {
        Value::Count(u64::try_from(*self).unwrap_or_default())
    }
    fn from_value(value: Value) -> Option<Self> {
        u64::from_value(value).and_then(|count| count.try_into().ok())
    }
}

impl Field for PathBuf {
    fn to_value(&self) -> Value {
        Value::Text(self.to_string_lossy().into_owned())
    }
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value).map(PathBuf::from)
    }
}

impl<T: Field> Field for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Unset, Field::to_value)
    }
    fn from_value(value: Value) -> Option<Self> {
        if value == Value::Unset { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// An enumeration whose variants have names in settings files.
macro_rules! choice {
    ($type:ty { $($name:literal => $variant:ident),+ }) => {
        impl Field for $type {
            fn to_value(&self) -> Value {
                Value::Text(match self { $(<$type>::$variant => $name),+ }.to_owned())
            }
            fn from_value(value: Value) -> Option<Self> {
                match String::from_value(value)?.as_str() {
                    $($name => Some(<$type>::$variant),)+
                    _ => None,
                }
            }
        }
        impl $type {
            /// The names of its values.
            pub(crate) const NAMES: &'static [&'static str] = &[$($name),+];
        }
    };
}

choice!(Network { "none" => None, "bridge" => Bridge });
choice!(Status { "quiet" => Quiet, "normal" => Normal, "verbose" => Verbose });
choice!(Install { "ask" => Ask, "always" => Always, "never" => Never });
choice!(Replay { "off" => Off, "record" => Record, "replay" => Replay, "auto" => Auto });
choice!(AgentMode { "default" => Standard, "ask" => Ask, "confirm" => Confirm, "auto" => Auto });
choice!(Updates { "auto" => Auto, "always" => Always, "never" => Never });

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_with_any_usual_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("1k", KIB),
            ("256m", 256 * MIB),
            ("256 MiB", 256 * MIB),
            ("1g", GIB),
            ("1.5G", GIB + GIB / 2),
            ("2t", 2 * TIB),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "m", "1x", "-1", "1.5", "1e3", "99999999999t", "9223372036854775808", "1..5g", "∞"]
        {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_seconds_unless_they_have_a_unit() {
        for (text, millis) in
            [("60", 60_000), ("1.5", 1500), ("90s", 90_000), ("500ms", 500), ("2h", 7_200_000)]
        {
            assert_eq!(time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1d", "nan", "inf", "1e400", "99999999999999999999999999"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_must_be_one_that_requests_can_go_to() {
        assert_eq!(url("http://localhost:8000/v1/").unwrap(), "http://localhost:8000/v1");
        for text in [
            "localhost:8000",
            "/v1",
            "ftp://x",
            "http://",
            "file:///etc/passwd",
            "http://a b",
            "http://a/v1?key=x",
            "http://a/#x",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
        assert!(url("https://user:key@host/v1").unwrap_err().contains("CELLBLOCK_MODEL__API_KEY"));
    }

    #[test]
    fn what_is_shown_is_read_back_as_the_same_value() {
        let environment = Environment::default();
        for (kind, text) in [
            (Kind::Size { min: 0 }, "256m"),
            (Kind::Size { min: 0 }, "1025"),
            (Kind::Time { none: true }, "none"),
            (Kind::Time { none: false }, "60s"),
            (Kind::Time { none: false }, "1500ms"),
            (Kind::Number { min: 0.0, max: 2.0 }, "0.5"),
            (Kind::Flag, "true"),
        ] {
            let value = kind.parse(text, &environment).unwrap();
            assert_eq!(kind.show(&value), text);
        }
    }
}
