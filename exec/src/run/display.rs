use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;

use super::turns::TAKES_TURNS;

/// Returns whether the operator is left out of displayed plans.
pub fn is_hidden(node: &dyn ExecutionPlan) -> bool {
    node.name() == TAKES_TURNS
}

/// Displays the operators of a plan that has run, with their metrics, one operator per line. Hidden
/// operators are left out.
pub fn display_with_metrics(plan: &Arc<dyn ExecutionPlan>) -> String {
    let displayed = DisplayableExecutionPlan::with_metrics(plan.as_ref());
    remove_hidden(&displayed.indent(true).to_string())
}

fn remove_hidden(text: &str) -> String {
    let mut shown = String::new();
    // Indentations of the hidden operators that the current line is nested in.
    let mut hidden: Vec<usize> = Vec::new();
    for line in text.lines() {
        let operator = line.trim_start();
        let depth = line.len() - operator.len();
        while hidden.last().is_some_and(|outer| *outer >= depth) {
            hidden.pop();
        }
        if operator.starts_with(TAKES_TURNS) {
            hidden.push(depth);
            continue;
        }
        shown.push_str(&line[hidden.len() * INDENT..]);
        shown.push('\n');
    }
    shown
}

/// Number of spaces by which DataFusion indents the inputs of an operator.
const INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_shown_without_what_only_takes_turns() {
        let text = "Join, metrics=[]\n  TakesTurnsExec\n    Left\n      TakesTurnsExec\n        Scan\n  Right\n    Scan\n";
        let shown = "Join, metrics=[]\n  Left\n    Scan\n  Right\n    Scan\n";
        assert_eq!(remove_hidden(text), shown);
    }
}
