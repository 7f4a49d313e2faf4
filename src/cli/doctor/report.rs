//! Findings and how they are shown.

use std::fmt::Write;
use std::io::IsTerminal;

use crate::config::Environment;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// As it should be.
    Good,
    /// Kernels work, but something is missing or weaker than it could be.
    Warning,
    /// Kernels do not work.
    Problem,
}

#[derive(Debug)]
struct Finding {
    level: Level,
    what: String,
    remedy: Option<String>,
}

/// What one check found.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
}

/// Whether colours are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    colours: bool,
}

impl Style {
    /// Colours only on a terminal that wants them.
    pub(super) fn for_terminal(environment: &Environment) -> Self {
        Style { colours: std::io::stdout().is_terminal() && !environment.plain_terminal() }
    }

    fn paint(self, level: Level, text: &str) -> String {
        let code = match level {
            Level::Good => 32,
            Level::Warning => 33,
            Level::Problem => 31,
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl Report {
    /// A report of one problem.
    pub(super) fn problem(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let mut report = Report::default();
        report.add_problem(what, remedy);
        report
    }

    /// A report that all is well.
    pub(super) fn good(what: impl Into<String>) -> Self {
        let mut report = Report::default();
        report.add_good(what);
        report
    }

    pub(super) fn add_good(&mut self, what: impl Into<String>) {
        self.findings.push(Finding { level: Level::Good, what: what.into(), remedy: None });
    }

    pub(super) fn add_warning(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding { level: Level::Warning, what: what.into(), remedy: Some(remedy.into()) });
    }

    pub(super) fn add_problem(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding { level: Level::Problem, what: what.into(), remedy: Some(remedy.into()) });
    }

    pub(super) fn append(&mut self, mut other: Report) {
        self.findings.append(&mut other.findings);
    }

    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    pub(super) fn problems(&self) -> usize {
        self.count(Level::Problem)
    }

    /// One line for each finding, its remedy below.
    pub(super) fn show(&self, subject: &str, style: Style) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let label = match finding.level {
                Level::Good => "ok     ",
                Level::Warning => "warning",
                Level::Problem => "problem",
            };
            let label = style.paint(finding.level, label);
            let what = finding.what.trim_end().replace('\n', "\n                     ");
            // Writing to a String does not fail.
            let _ = writeln!(text, "{label}  {subject:<10}  {what}");
            if let Some(remedy) = &finding.remedy {
                let _ = writeln!(text, "                     -> {remedy}");
            }
        }
        text
    }

    /// The last line.
    pub(super) fn summary(&self, style: Style) -> String {
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        match (self.problems(), self.count(Level::Warning)) {
            (0, 0) => format!("\n{}\n", style.paint(Level::Good, "All is well.")),
            (0, warnings) => {
                let text = format!("Kernels can work; {}.", plural(warnings, "warning"));
                format!("\n{}\n", style.paint(Level::Warning, &text))
            }
            (problems, warnings) => {
                let text = format!("{}, {}.", plural(problems, "problem"), plural(warnings, "warning"));
                format!("\n{}\n", style.paint(Level::Problem, &text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_appear_only_when_they_are_wanted() {
        let mut report = Report::good("a");
        report.add_warning("b", "do c");
        let plain = report.show("x", Style { colours: false });
        assert_eq!(plain, "ok       x           a\nwarning  x           b\n                     -> do c\n");
        assert!(report.show("x", Style { colours: true }).contains("\x1b[33mwarning\x1b[0m"));
    }

    #[test]
    fn the_last_line_counts_what_matters() {
        let style = Style { colours: false };
        let mut report = Report::good("a");
        assert_eq!(report.summary(style), "\nAll is well.\n");
        report.add_warning("b", "c");
        assert_eq!(report.summary(style), "\nKernels can work; 1 warning.\n");
        report.add_problem("d", "e");
        assert_eq!(report.summary(style), "\n1 problem, 1 warning.\n");
    }
}
