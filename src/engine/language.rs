//! What `kernel_info` says about the language of the cells.

use serde_json::json;

use super::LanguageInfo;
use crate::config::Flavor;
use crate::sandbox::PythonInfo;

/// The `CommonMark` version that the parser follows.
const COMMONMARK: &str = "0.31";

/// The language of a kernelspec's cells; `python` is what the sandbox said of itself, once it has.
pub(super) fn info(flavor: Flavor, python: Option<&PythonInfo>) -> LanguageInfo {
    let version = env!("CARGO_PKG_VERSION");
    match flavor {
        Flavor::Markdown => LanguageInfo {
            banner: format!(
                "Cellblock {version}: cells are Markdown. Prose goes to a language model, fenced code runs in a \
                 sandbox. %help lists the magics."
            ),
            language_info: json!({
                "name": "markdown",
                "version": COMMONMARK,
                "mimetype": "text/x-markdown",
                "file_extension": ".md",
                "pygments_lexer": "markdown",
                // JupyterLab's own name for Markdown whose fences are highlighted in their language.
                "codemirror_mode": "ipythongfm",
            }),
        },
        Flavor::Python => {
            let banner = match python {
                Some(PythonInfo { version: python, ipython: Some(ipython) }) => {
                    format!(
                        "Python {python}, IPython {ipython}, in a Cellblock {version} sandbox. %cb help lists its magics."
                    )
                }
                Some(PythonInfo { version: python, ipython: None }) => {
                    format!("Python {python} in a Cellblock {version} sandbox. %cb help lists its magics.")
                }
                None => format!("Python in a Cellblock {version} sandbox. %cb help lists its magics."),
            };
            LanguageInfo {
                banner,
                language_info: json!({
                    "name": "python",
                    "version": python.map_or("3", |python| python.version.as_str()),
                    "mimetype": "text/x-python",
                    "file_extension": ".py",
                    "pygments_lexer": "ipython3",
                    "codemirror_mode": {"name": "ipython", "version": 3},
                    "nbconvert_exporter": "python",
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_cells_say_so_whatever_python_the_sandbox_has() {
        let info = info(Flavor::Markdown, None);
        assert_eq!(info.language_info["name"], "markdown");
        assert_eq!(info.language_info["codemirror_mode"], "ipythongfm");
    }

    #[test]
    fn python_cells_name_the_sandbox_python_once_it_is_known() {
        assert_eq!(info(Flavor::Python, None).language_info["version"], "3");
        let python = PythonInfo { version: "3.11.2".into(), ipython: Some("9.1.0".into()) };
        let info = info(Flavor::Python, Some(&python));
        assert_eq!(info.language_info["version"], "3.11.2");
        assert_eq!(info.language_info["pygments_lexer"], "ipython3");
        assert!(info.banner.contains("IPython 9.1.0"));
    }
}
