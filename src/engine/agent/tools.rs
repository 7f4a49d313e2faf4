//! What the model is offered, and what its calls ask for. To add a tool: a row in [`offered`], an arm in [`read`].
//!
//! Descriptions are short: small models read them with each question.

use serde_json::{Map, Value, json};

use crate::chat::{CodeArguments, Tool, ToolCall};
use crate::config::Install;
use crate::engine::execute::Engine;
use crate::sandbox::packages::{Manager, Packages};

pub(super) const RUN_CODE: &str = "run_code";
const READ_FILE: &str = "read_file";
const WRITE_FILE: &str = "write_file";
const LIST_FILES: &str = "list_files";
const LIST_CONTAINERS: &str = "list_containers";
const INSTALL_PACKAGES: &str = "install_packages";

/// The longest code or content of a call, in bytes.
const LONGEST: usize = 256 << 10;
/// The longest path, in bytes.
const PATH: usize = 1000;
/// Packages of one call.
const PACKAGES: usize = 30;

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    RunCode {
        code: String,
        /// As the model wrote it.
        language: String,
        container: Option<String>,
    },
    ReadFile {
        path: String,
        /// The first line, from 1.
        line: u64,
    },
    WriteFile {
        path: String,
        content: String,
    },
    ListFiles {
        path: String,
    },
    ListContainers,
    InstallPackages {
        packages: Packages,
        container: Option<String>,
    },
}

/// The tools that there are in this kernel.
pub(super) fn offered(engine: &Engine) -> Vec<Tool> {
    let containers: Vec<_> =
        engine.sandbox.registry().containers().iter().filter(|c| c.refused.is_none()).collect();
    let mut languages: Vec<&str> = Vec::new();
    for language in containers.iter().flat_map(|container| &container.languages) {
        if !languages.contains(language) {
            languages.push(language);
        }
    }
    let names: Vec<&str> = containers.iter().map(|container| container.name.as_str()).collect();
    let several = names.len() > 1;
    let container = || json!({ "type": "string", "enum": names, "description": "Where; rarely needed." });
    let mut run = json!({
        "code": { "type": "string", "description": "The whole program." },
        "language": { "type": "string", "enum": languages },
    });
    let path = json!({ "type": "string", "description": "Relative to the working directory." });
    if several {
        run["container"] = container();
    }
    let mut tools = vec![
        Tool {
            code: Some(CodeArguments { code: "code", language: "language", default: "python" }),
            ..tool(
                RUN_CODE,
                "Run code in the sandbox and get what it prints. Python keeps its variables from call to call. The \
                 user sees output and plots too.",
                &run,
                &["code", "language"],
            )
        },
        tool(
            READ_FILE,
            "Read a text file of the workspace.",
            &json!({ "path": path, "line": { "type": "integer", "description": "First line, from 1." } }),
            &["path"],
        ),
        Tool {
            code: Some(CodeArguments { code: "content", language: "language", default: "text" }),
            ..tool(
                WRITE_FILE,
                "Write a text file of the workspace, in the place of the old one.",
                &json!({ "path": path, "content": { "type": "string" } }),
                &["path", "content"],
            )
        },
        tool(LIST_FILES, "List the files of the workspace.", &json!({ "path": path }), &[]),
    ];
    if several {
        tools.push(tool(
            LIST_CONTAINERS,
            "List the containers that code can run in, and what each is for.",
            &json!({}),
            &[],
        ));
    }
    if engine.habits.install != Install::Never {
        let mut packages = json!({
            "packages": { "type": "array", "items": { "type": "string" }, "description": "Names, with versions if need be." },
            "manager": { "type": "string", "enum": ["pip", "apt", "npm"] },
        });
        if several {
            packages["container"] = container();
        }
        tools.push(tool(
            INSTALL_PACKAGES,
            "Install packages that are missing (pip unless said otherwise).",
            &packages,
            &["packages"],
        ));
    }
    tools
}

fn tool(name: &'static str, description: &str, properties: &Value, required: &[&str]) -> Tool {
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    Tool { name, description: description.to_owned(), parameters, code: None }
}

/// What a call asks for.
///
/// # Errors
/// Says to the model what is wrong with it, and what would be right.
pub(super) fn read(call: &ToolCall, offered: &[Tool]) -> Result<Wanted, String> {
    let Some(tool) = offered.iter().find(|tool| tool.name == call.name) else {
        let names: Vec<_> = offered.iter().map(|tool| tool.name).collect();
        let name: String = call.name.chars().take(60).collect();
        return Err(format!("There is no tool {name:?}. The tools are: {}.", names.join(", ")));
    };
    let arguments = Arguments { tool, values: object(&call.arguments, tool)? };
    match tool.name {
        RUN_CODE => {
            let code = bare(arguments.required("code")?);
            if code.trim().is_empty() {
                return Err(arguments.wrong("\"code\" is empty"));
            }
            let language = arguments.text("language")?.filter(|language| !language.trim().is_empty());
            let language = language.unwrap_or_else(|| "python".to_owned()).trim().to_lowercase();
            Ok(Wanted::RunCode { code, language, container: arguments.named("container")? })
        }
        READ_FILE => {
            let line = match arguments.values.get("line") {
                None | Some(Value::Null) => 1,
                Some(value) => value
                    .as_u64()
                    .or_else(|| value.as_str()?.trim().parse().ok())
                    .ok_or_else(|| arguments.wrong("\"line\" is no number of a line"))?,
            };
            Ok(Wanted::ReadFile { path: arguments.path()?, line: line.max(1) })
        }
        WRITE_FILE => {
            Ok(Wanted::WriteFile { path: arguments.path()?, content: arguments.required("content")? })
        }
        LIST_FILES => {
            Ok(Wanted::ListFiles { path: arguments.named("path")?.unwrap_or_else(|| ".".to_owned()) })
        }
        LIST_CONTAINERS => Ok(Wanted::ListContainers),
        _ => Ok(Wanted::InstallPackages {
            packages: arguments.packages()?,
            container: arguments.named("container")?,
        }),
    }
}

/// The arguments as an object, also when they are a JSON text in a JSON text.
fn object(text: &str, tool: &Tool) -> Result<Map<String, Value>, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let parsed = serde_json::from_str::<Value>(text).and_then(|value| match &value {
        Value::String(inner) => serde_json::from_str(inner),
        _ => Ok(value),
    });
    match parsed {
        Ok(Value::Object(values)) => Ok(values),
        Ok(_) => Err(format!("The arguments must be a JSON object. {}", usage(tool))),
        Err(error) => Err(format!("The arguments are not valid JSON ({error}). {}", usage(tool))),
    }
}

/// How a tool is called.
fn usage(tool: &Tool) -> String {
    let properties = tool.parameters["properties"].as_object();
    let required = tool.parameters["required"].as_array();
    let names: Vec<String> = properties
        .into_iter()
        .flat_map(Map::keys)
        .map(|name| {
            let needed = required.is_some_and(|names| names.iter().any(|one| one == name));
            if needed { format!("\"{name}\"") } else { format!("\"{name}\" (may be left out)") }
        })
        .collect();
    if names.is_empty() {
        return format!("{} takes no arguments.", tool.name);
    }
    format!("{} takes {}.", tool.name, names.join(", "))
}

struct Arguments<'a> {
    tool: &'a Tool,
    values: Map<String, Value>,
}

impl Arguments<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("{what}. {}", usage(self.tool))
    }

    fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() > LONGEST => {
                Err(self.wrong(&format!("{name:?} is longer than {} kB", LONGEST >> 10)))
            }
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(&format!("{name:?} must be a string"))),
        }
    }

    fn required(&self, name: &str) -> Result<String, String> {
        self.text(name)?.ok_or_else(|| self.wrong(&format!("{name:?} is missing")))
    }

    /// A name that may be left out; models leave out with an empty text, too.
    fn named(&self, name: &str) -> Result<Option<String>, String> {
        let text = self.text(name)?.map(|text| text.trim().to_owned());
        Ok(text.filter(|text| !matches!(text.as_str(), "" | "null" | "none" | "None")))
    }

    /// The whole path, as it will be used: what the user is asked about is what happens.
    fn path(&self) -> Result<String, String> {
        let path = self.named("path")?.ok_or_else(|| self.wrong("\"path\" is missing"))?;
        if path.len() > PATH || path.contains("  ") || path.chars().any(char::is_control) {
            return Err(self.wrong(&format!(
                "\"path\" must be at most {PATH} bytes, without control characters or several spaces in a row"
            )));
        }
        let mut whole: Vec<&str> = if path.starts_with('/') { Vec::new() } else { vec!["workspace"] };
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    whole.pop();
                }
                part => whole.push(part),
            }
        }
        Ok(format!("/{}", whole.join("/")))
    }

    fn packages(&self) -> Result<Packages, String> {
        let manager = match self.named("manager")?.as_deref() {
            None | Some("pip") => Manager::Pip,
            Some("apt") => Manager::Apt,
            Some("npm") => Manager::Npm,
            Some(_) => return Err(self.wrong("\"manager\" must be pip, apt or npm")),
        };
        let wrong = || self.wrong("\"packages\" must be a list of names");
        let names: Vec<&str> = match self.values.get("packages") {
            Some(Value::Array(names)) => {
                names.iter().map(|name| name.as_str().ok_or_else(wrong)).collect::<Result<_, _>>()?
            }
            Some(Value::String(names)) => names.split([',', ' ']).filter(|name| !name.is_empty()).collect(),
            _ => return Err(wrong()),
        };
        if names.is_empty() || names.len() > PACKAGES {
            return Err(self.wrong(&format!("\"packages\" must hold 1 to {PACKAGES} names")));
        }
        let mut packages = Packages::default();
        for name in names {
            packages.add(manager, name.trim()).map_err(|error| self.wrong(&error.to_string()))?;
        }
        Ok(packages)
    }
}

/// Code without the one fence that small models put around it.
fn bare(code: String) -> String {
    let inner = || {
        let trimmed = code.trim();
        let rest = trimmed.strip_prefix("```")?;
        let (info, rest) = rest.split_once('\n')?;
        let body = rest.strip_suffix("```")?;
        (!info.contains('`') && !body.contains("```")).then(|| body.to_owned())
    };
    inner().unwrap_or(code)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn some() -> Vec<Tool> {
        vec![
            tool(
                RUN_CODE,
                "",
                &json!({ "code": {}, "language": {}, "container": {} }),
                &["code", "language"],
            ),
            tool(READ_FILE, "", &json!({ "path": {}, "line": {} }), &["path"]),
            tool(LIST_FILES, "", &json!({ "path": {} }), &[]),
            tool(INSTALL_PACKAGES, "", &json!({ "packages": {}, "manager": {} }), &["packages"]),
        ]
    }

    fn call(name: &str, arguments: &str) -> Result<Wanted, String> {
        read(&ToolCall { id: "1".into(), name: name.into(), arguments: arguments.into() }, &some())
    }

    fn python(code: &str) -> Wanted {
        Wanted::RunCode { code: code.into(), language: "python".into(), container: None }
    }

    #[test]
    fn what_models_write_is_understood() {
        assert_eq!(call(RUN_CODE, r#"{"code": "1", "language": "Python"}"#), Ok(python("1")));
        assert_eq!(call(RUN_CODE, r#""{\"code\": \"1\"}""#), Ok(python("1")), "JSON in JSON");
        assert_eq!(call(RUN_CODE, r#"{"code": "```python\n1\n```", "container": ""}"#), Ok(python("1\n")));
        assert_eq!(call(RUN_CODE, r#"{"code": "a = '''```x```'''"}"#), Ok(python("a = '''```x```'''")));
        assert_eq!(call(LIST_FILES, ""), Ok(Wanted::ListFiles { path: ".".into() }));
        let from = |line| Ok(Wanted::ReadFile { path: "/workspace/a".into(), line });
        assert_eq!(call(READ_FILE, r#"{"path": "a", "line": "3"}"#), from(3));
        assert_eq!(call(READ_FILE, r#"{"path": " a ", "line": 0}"#), from(1));
        let mut packages = Packages::default();
        packages.add(Manager::Pip, "rich").unwrap();
        packages.add(Manager::Pip, "httpx>=0.2").unwrap();
        let wanted = Wanted::InstallPackages { packages, container: None };
        assert_eq!(call(INSTALL_PACKAGES, r#"{"packages": "rich, httpx>=0.2"}"#), Ok(wanted));
    }

    #[test]
    fn what_can_not_be_understood_is_answered_with_what_would_be_right() {
        for (name, arguments, said) in [
            ("python", "{}", "There is no tool \"python\". The tools are: run_code, "),
            (RUN_CODE, "{\"code\": ", "The arguments are not valid JSON"),
            (RUN_CODE, "[1]", "The arguments must be a JSON object. run_code takes \"code\", \"language\", "),
            (RUN_CODE, "{}", "\"code\" is missing. run_code takes"),
            (RUN_CODE, r#"{"code": " \n"}"#, "\"code\" is empty"),
            (RUN_CODE, r#"{"code": ["1"]}"#, "\"code\" must be a string"),
            (READ_FILE, r#"{"path": "a", "line": -1}"#, "\"line\" is no number"),
            (READ_FILE, r#"{"path": ""}"#, "\"path\" is missing"),
            (INSTALL_PACKAGES, r#"{"packages": []}"#, "\"packages\" must hold 1 to 30"),
            (INSTALL_PACKAGES, r#"{"packages": ["git+https://x/y"]}"#, "\"git+https://x/y\" is not"),
            (INSTALL_PACKAGES, r#"{"packages": ["x"], "manager": "curl"}"#, "\"manager\" must be"),
        ] {
            let wrong = call(name, arguments).unwrap_err();
            assert!(wrong.starts_with(said), "{wrong}");
        }
        let giant = json!({ "code": "x".repeat(LONGEST + 1) }).to_string();
        assert!(call(RUN_CODE, &giant).unwrap_err().starts_with("\"code\" is longer than 256 kB"));
        assert!(call(&"n".repeat(10_000), "{}").unwrap_err().len() < 300);
    }
}
