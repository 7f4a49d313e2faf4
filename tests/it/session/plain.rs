//! The Python session of an image without `IPython`.

use std::sync::Arc;

use cellblock::event::Event;
use cellblock::sandbox::runner::Script;
use cellblock::sandbox::{Completeness, Run};
use serde_json::json;

use super::{Answers, Around, Bed};

/// As if the image had no `IPython`.
fn bed() -> Bed {
    let script = Script::default().weakened(
        "\"exec(compile(s['worker']",
        "\"import sys;sys.modules['IPython']=None\\n\"\n    \"exec(compile(s['worker']",
    );
    Bed::build(|_| (), Some(script), false, false)
}

#[tokio::test(flavor = "multi_thread")]
async fn values_errors_and_state_work_without_ipython() {
    let bed = bed();
    assert_eq!(bed.python("x = 20\nx + 1").await.ok().result(), "21");
    assert_eq!(bed.sandbox.python().expect("known").ipython, None);
    let ran = bed
        .run(Run { count: 3, ..Run::new("python", "def f():\n    return 1 / 0\nf()") }, Around::default())
        .await;
    let failure = ran.failure();
    assert_eq!(failure.ename, "ZeroDivisionError");
    let told = &ran.end.transcript;
    assert!(
        told.contains("Cell In[3]") && told.contains("return 1 / 0") && !told.contains("cellblock"),
        "{told}"
    );
    assert_eq!(bed.python("def f(:").await.failure().ename, "SyntaxError");
    assert!(bed.python("!ls").await.failure().evalue.contains("IPython"));
    assert_eq!(bed.python("import asyncio\nawait asyncio.sleep(0, 'woken')").await.ok().result(), "'woken'");
    let mut run =
        Run { count: 9, ..Run::new("python", "class C:\n    def _repr_html_(self): return '<b>c</b>'\nC()") };
    run.user_expressions.insert("n".into(), json!("x"));
    let ran = bed.run(run, Around::default()).await;
    let Some(Event::Result { bundle }) = ran.ok().events.last() else { panic!("{ran:?}") };
    assert_eq!(bundle.data()["text/html"], "<b>c</b>");
    assert_eq!(ran.end.user_expressions["n"]["data"]["text/plain"], "20");
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_questions_interrupts_and_completion_work_without_ipython() {
    let bed = bed();
    let ran = bed.python("import matplotlib.pyplot as plt\nplt.plot([1, 2]);").await;
    let figures = ran.ok().events.iter().filter(
        |event| matches!(event, Event::Display { bundle, .. } if bundle.data().contains_key("image/png")),
    );
    assert_eq!(figures.count(), 1, "{ran:?}");
    let plan = Around { ask: Arc::clone(&Answers::new([Ok("Ada")])) as _, ..Around::default() };
    assert_eq!(bed.run(Run::new("python", "kept = input('?')\nkept"), plan).await.ok().result(), "'Ada'");
    let plan = Around { cancel_at: Some("go"), ..Around::default() };
    let ran = bed.run(Run::new("python", "print('go')\nwhile True: pass"), plan).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
    assert_eq!(bed.sandbox.complete("kept.upp", 8).await.matches, ["kept.upper"]);
    assert!(bed.sandbox.inspect("print", 5, 0).await.is_some());
    let Completeness::Incomplete { indent } = bed.sandbox.is_complete("if x:").await else { panic!() };
    assert_eq!(indent, "    ");
    assert_eq!(bed.python("kept").await.ok().result(), "'Ada'");
}
