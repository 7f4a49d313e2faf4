//! Magics in what the user is told, spelt as the kernel's cells have them.
//!
//! Texts of the floors above say `%context`; where that is `IPython`'s, it is `%cb context`.

use super::find;
use crate::cell::Dialect;
use crate::engine::execute::Engine;
use crate::event::Failure;

impl Engine {
    /// A text of ours, with its magics as this kernel's cells have them.
    pub(in crate::engine) fn spelt(&self, text: &str) -> String {
        spelt(text, self.dialect())
    }

    /// The same for a failure.
    pub(in crate::engine) fn spelt_failure(&self, failure: Failure) -> Failure {
        Failure { evalue: self.spelt(&failure.evalue), ..failure }
    }
}

fn spelt(text: &str, dialect: Dialect) -> String {
    let plain = Dialect::Markdown.sigil();
    if dialect == Dialect::Markdown {
        return text.to_owned();
    }
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(plain) {
        let (before, after) = (&rest[..at], &rest[at + plain.len()..]);
        done.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        // `100%model` and `%%chat` are none.
        let apart = !done.ends_with(|c: char| c.is_alphanumeric() || c == '%');
        let ours = apart && find(&after[..end]).is_some();
        done.push_str(if ours { dialect.sigil() } else { plain });
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_of_ours_are_spelt_as_the_cells_have_them_and_nothing_else_changes() {
        let text =
            "%context lists them (%model); 100%model, %timeit, %%chat, 5% of `%mode auto`, %cb reset, %";
        assert_eq!(spelt(text, Dialect::Markdown), text);
        assert_eq!(
            spelt(text, Dialect::Python),
            "%cb context lists them (%cb model); 100%model, %timeit, %%chat, 5% of `%cb mode auto`, %cb reset, %"
        );
    }
}
