//! What the user sees of the files that a run wrote: one list with links, and what can be shown itself.
//!
//! Imports `event` and its neighbours. The list is HTML of ours with every name in it escaped; what files hold has
//! been through [`Bundle::sanitised`], or goes through it here.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::heads::Table;
use super::look::{Artifact, Preview};
use super::paths::{link, shortened, visible};
use crate::event::{Bundle, words};
use crate::sandbox::output::size;

/// The key of the list's metadata.
pub const METADATA: &str = "application/vnd.cellblock.artifacts+json";
/// Files that are listed without a click.
const OPEN: usize = 12;
/// Names up to this many characters are not broken.
const SHORT: usize = 40;
/// Characters of a name, and of a path.
const NAME: usize = 80;
const PATH: usize = 160;
/// The longest link, in bytes.
const LINK: usize = 2048;

/// The displays for what a run wrote, in order: the list first.
pub(crate) fn displays(artifacts: Vec<Artifact>, more: usize) -> Vec<Bundle> {
    if artifacts.is_empty() && more == 0 {
        return Vec::new();
    }
    let mut bundles = vec![list(&artifacts, more)];
    let shown = artifacts.iter().filter(|a| matches!(a.preview, Preview::Rich(_))).count();
    for Artifact { container, preview, .. } in artifacts {
        let name = name_of(&container);
        match preview {
            Preview::None | Preview::Parquet => {}
            Preview::Rich(bundle) => {
                if shown > 1 {
                    let html = format!("<small><b>{}</b></small>", escaped(&name));
                    bundles.push(Bundle::trusted_html(html, name));
                }
                bundles.push(bundle);
            }
            Preview::Table(table) => bundles.push(head_of_table(&name, &table)),
            Preview::Text(text, more) => bundles.push(head_of_text(&name, &text, more)),
        }
    }
    bundles
}

fn list(artifacts: &[Artifact], more: usize) -> Bundle {
    let count = artifacts.len() + more;
    let total = artifacts.iter().fold(0_u64, |sum, a| sum.saturating_add(a.bytes));
    let files = if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let at_least = if more > 0 { " and more" } else { "" };
    let title = format!("Artifacts: {files}, {}{at_least}", size(total));
    let mut plain = title.clone();
    let mut rows = [String::new(), String::new()];
    let mut entries = Vec::new();
    for (index, artifact) in artifacts.iter().enumerate() {
        let Artifact { container, host, bytes, mime, .. } = artifact;
        let inside = shortened(&visible(container), PATH);
        let outside = host.as_deref().map_or_else(String::new, |host| shortened(&visible(host), PATH));
        let arrow = if outside.is_empty() { "" } else { " -> " };
        let _ = write!(plain, "\n  {inside}{arrow}{outside}  {}", size(*bytes));
        rows[usize::from(index >= OPEN)].push_str(&row(artifact, &inside, &outside));
        entries.push(json!({
            "container": container.to_string_lossy(),
            "host": host.as_deref().map(Path::to_string_lossy),
            "bytes": bytes,
            "mime": mime,
        }));
    }
    if more > 0 {
        let _ = write!(plain, "\n  and {more} more");
    }
    let [first, rest] = rows;
    let mut html = format!("<div style=\"margin:2px 0\"><b>{}</b></div>{}", escaped(&title), table(&first));
    if !rest.is_empty() {
        let hidden = artifacts.len() - OPEN;
        let _ = write!(html, "<details><summary>{hidden} more</summary>{}</details>", table(&rest));
    }
    if more > 0 {
        let _ = write!(html, "<div><small>and {more} more, not listed</small></div>");
    }
    let mut metadata = json!({ "artifacts": entries });
    if more > 0 {
        metadata["more"] = json!(more);
    }
    Bundle::trusted_html(html, plain).with_metadata(METADATA, metadata)
}

fn table(rows: &str) -> String {
    format!("<table style=\"margin:0 0 4px 0\"><tbody>{rows}</tbody></table>")
}

fn row(artifact: &Artifact, inside: &str, outside: &str) -> String {
    const CELL: &str = "text-align:left;padding:2px 12px 2px 0;background:none";
    let name = shortened(&name_of(&artifact.container), NAME);
    let keep = if name.chars().count() <= SHORT { "nowrap" } else { "normal;overflow-wrap:anywhere" };
    let name = escaped(&name);
    let link = artifact.host.as_deref().and_then(link).filter(|link| link.len() <= LINK);
    let name = match link {
        // Its characters need no escape: all others are encoded.
        Some(link) => format!("<a href=\"{link}\" target=\"_blank\" rel=\"noopener\">{name}</a>"),
        None => name,
    };
    let outside = if outside.is_empty() { String::new() } else { format!(" → {}", escaped(outside)) };
    format!(
        "<tr><td style=\"{CELL};white-space:{keep}\">{name}</td><td style=\"{CELL};white-space:nowrap\">{}</td><td \
         style=\"{CELL};opacity:.7;overflow-wrap:anywhere\"><code style=\"background:none;padding:0\">{}{outside}</code></td></tr>",
        size(artifact.bytes),
        escaped(inside),
    )
}

fn head_of_table(name: &str, table: &Table) -> Bundle {
    let rows = |count: u64| {
        if count == 1 { "1 row".to_owned() } else { format!("{} rows", words::thousands(count)) }
    };
    let about = match (table.more, table.count) {
        (true, count) => format!("more than {}", rows(count)),
        (false, count) => rows(count),
    };
    let columns =
        if table.columns == 1 { "1 column".to_owned() } else { format!("{} columns", table.columns) };
    let title = format!("{name}: {about}, {columns}");
    let is_number = |value: &String| value.is_empty() || value.parse::<f64>().is_ok();
    let numeric: Vec<bool> = (0..table.header.len())
        .map(|column| table.rows.iter().filter_map(|row| row.get(column)).all(is_number))
        .collect();
    let line = |values: &[String], tag: &str| {
        let mut cells = String::new();
        for (index, value) in values.iter().enumerate() {
            // Numbers are easier to compare on the right, which is where front ends put everything.
            let side = if numeric.get(index) == Some(&true) { "" } else { " style=\"text-align:left\"" };
            let _ = write!(cells, "<{tag}{side}>{}</{tag}>", escaped(value));
        }
        let cut = if table.columns > values.len() && values.len() == table.header.len() && tag == "th" {
            format!("<{tag}>…</{tag}>")
        } else {
            String::new()
        };
        format!("<tr>{cells}{cut}</tr>")
    };
    let body: String = table.rows.iter().map(|row| line(row, "td")).collect();
    let html = format!(
        "<div><small><b>{}</b></small></div><table><thead>{}</thead><tbody>{body}</tbody></table>",
        escaped(&title),
        line(&table.header, "th"),
    );
    let mut plain = format!("{title}\n{}", table.header.join(" | "));
    for row in &table.rows {
        let _ = write!(plain, "\n{}", row.join(" | "));
    }
    sanitised(html, plain)
}

fn head_of_text(name: &str, text: &str, more: bool) -> Bundle {
    let title = if more { format!("{name} (its beginning)") } else { name.to_owned() };
    let html = format!(
        "<div><small><b>{}</b></small></div><pre style=\"margin:2px 0 6px 12px\">{}</pre>",
        escaped(&title),
        escaped(text)
    );
    sanitised(html, format!("{title}\n{}", text.trim_end()))
}

fn sanitised(html: String, plain: String) -> Bundle {
    let mut data = Map::new();
    data.insert("text/html".to_owned(), Value::String(html));
    data.insert("text/plain".to_owned(), Value::String(plain));
    Bundle::sanitised(data, Map::new())
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| visible(path), |name| visible(Path::new(name)))
}

/// Text for an element. What could begin a formula is kept apart from what follows, so that it does not.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '$' => out.push_str("<span>$</span>"),
            '\\' => out.push_str("<span>\\</span>"),
            c => out.push(c),
        }
    }
    out
}
