//! `explain --emit html` and `diff --emit html`: the file itself, and the file in a browser.

mod browser;

use std::path::PathBuf;

use crate::common::{fed, shardc, text};
use browser::Browser;
use serde_json::json;

#[test]
fn one_file_holds_all_and_fetches_nothing() {
    let ran = shardc(&["explain", "mlp.shard", "--emit", "html"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("<!doctype html>\n") && ran.out.ends_with("</html>\n"));
    let page = ran.out.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=\"", "@import", "url(", "fetch(", "{{"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_eq!(
        shardc(&["explain", "mlp.shard", "--emit", "html"]).out,
        ran.out,
        "byte for byte the same"
    );
}

#[test]
fn every_collective_of_the_text_is_on_the_page_with_its_reason() {
    let page = shardc(&["explain", "mlp.shard", "--emit", "html"]).out;
    let explained = shardc(&["explain", "mlp.shard", "--format", "json"]).out;
    let document: serde_json::Value = serde_json::from_str(&explained).expect("JSON");
    let reasons: Vec<&str> = document["layers"][0]["instructions"]
        .as_array()
        .expect("instructions")
        .iter()
        .filter_map(|instruction| instruction["reason"].as_str())
        .collect();
    assert_eq!(reasons.len(), 4);
    for reason in reasons {
        assert!(page.contains(&format!("<div class=\"why\">{reason}</div>")), "{reason}");
    }
}

#[test]
fn what_a_file_says_is_text_and_never_markup() {
    let source =
        format!("// </script><script>alert(1)</script> & {{{{data}}}}\n{}", text("mlp.shard"))
            .replace("let h = ", "// <b>{{body}}</b> \"quoted\"\n  let h = ");
    let page = fed(&["explain", "-", "--emit", "html"], &source).out;
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("<b>{{") && page.contains("&#60;b&#62;{{body}}&#60;/b&#62;"), "{page}");
}

#[test]
fn the_timeline_is_drawn_without_a_script_and_links_lead_to_steps() {
    let page = shardc(&["explain", "mlp.shard", "--emit", "html"]).out;
    let body = page.split("<script").next().expect("what is before the script");
    assert!(body.contains("<span class=\"badge proven\">proven</span>"), "{body}");
    for shown in ["<div>compute 73 %</div>", "<rect x=\"", "memory at the peak"] {
        assert!(body.contains(shown), "{shown}\n{body}");
    }
    assert_eq!(body.matches("<a href=\"#").count(), 3, "the steps that matter most");
    for link in body.split("<a href=\"#").skip(1) {
        let id = link.split('"').next().expect("a place");
        assert_eq!(body.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
}

#[test]
fn a_plan_without_source_has_a_page_too() {
    let page = shardc(&["explain", "every_move.shir", "--emit", "html"]);
    assert_eq!(page.status, 0, "{page:?}");
    assert!(page.out.contains("class=\"step move\""));
}

#[test]
fn layers_that_are_equal_are_folded_behind_the_first() {
    let calls = |count: usize| {
        let weights: String = (0..count)
            .map(|at| format!(", u{at}: weight bf16 EF_x, d{at}: weight bf16 F_xE"))
            .collect();
        let lets: String = (0..count)
            .map(|at| format!("  let y{} = block(y{at}, u{at}, d{at})\n", at + 1))
            .collect();
        let source = format!(
            "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim E = 4096\ndim F = 16384\n\
             layer block(x: bf16 B_xE, up: weight bf16 EF_x, down: weight bf16 F_xE) -> \
             bf16 B_xE {{\n  let h = gelu(einsum(x, up -> BF))\n  \
             return x + einsum(h, down -> BE)\n}}\n\
             layer tower(y0: bf16 B_xE{weights}) -> bf16 B_xE {{\n{lets}  return y{count}\n}}\n"
        );
        let asked =
            |emit: &str| fed(&["explain", "-", "--no-alternatives", "--emit", emit], &source).out;
        (asked("text"), asked("html"), asked("json"))
    };
    let (text, page, json) = calls(4);
    assert_eq!(text.matches("let h = gelu(").count(), 1, "{text}");
    let line = text.lines().find(|line| line.contains(", equal to this one"));
    let line = line.expect("what the others take");
    assert!(line.starts_with("  3 more calls of block, equal to this one "), "{line}");
    assert!(line.ends_with("  75.0 %"), "{line}");
    assert!(page.contains("more, of layers that are equal to the first</summary>"), "{page}");
    // Each step has its own anchor once, in folded calls too.
    let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let steps = document["layers"][0]["instructions"].as_array().expect("instructions");
    for step in steps.iter().filter(|step| step["op"] != "parameter") {
        assert_eq!(page.matches(&format!("id=\"layer0-step{}\"", step["id"])).count(), 1);
    }
    // Two calls are not folded: each is listed.
    let (text, page, _) = calls(2);
    assert_eq!(text.matches("let h = gelu(").count(), 2, "{text}");
    assert!(!page.contains("<details class=\"alike\">"), "{page}");
}

/// The page that `diff` makes of a file on its own mesh and on another mesh.
fn side_by_side() -> String {
    let ran = shardc(&["diff", "mlp.shard", "--mesh-b", "x=2,y=2,z=4", "--emit", "html"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    ran.out
}

#[test]
fn two_plans_stand_side_by_side_on_a_page_that_fetches_nothing() {
    let page = side_by_side();
    assert!(page.starts_with("<!doctype html>\n") && page.ends_with("</html>\n"));
    for word in ["http:", "https:", "src=\"", "@import", "url(", "<script", "{{"] {
        assert!(!page.contains(word), "{word}");
    }
    for (letter, mesh) in [("a", "x=4,y=4,z=4"), ("b", "x=2,y=2,z=4")] {
        let explained = shardc(&["explain", "mlp.shard", "--mesh", mesh, "--format", "json"]).out;
        let document: serde_json::Value = serde_json::from_str(&explained).expect("JSON");
        let steps = document["layers"][0]["instructions"].as_array().expect("instructions");
        assert_eq!(page.matches(&format!("id=\"layer0-{letter}")).count(), steps.len(), "{mesh}");
        for reason in steps.iter().filter_map(|step| step["reason"].as_str()) {
            assert!(page.contains(&format!("<div class=\"why\">{reason}</div>")), "{reason}");
        }
    }
    assert!(page.contains("class=\"pair changed\"") && !page.contains("class=\"pair alone\""));
    assert!(page.contains("(+517 us, +236.2 %)"), "{page}");
}

#[test]
fn a_plan_that_was_written_down_stands_beside_one_that_is_lowered_now() {
    let written = shardc(&["explain", "mlp.shard", "--mesh", "x=2,y=2,z=4", "--format", "json"]);
    let page = fed(&["diff", "mlp.shard", "-", "--emit", "html"], &written.out).out;
    let steps = |page: &str| page.split("<h3>Steps</h3>").nth(1).expect("steps").to_string();
    assert_eq!(steps(&page), steps(&side_by_side()));
}

#[test]
fn equal_steps_are_folded_and_steps_of_one_plan_stand_alone() {
    let page = shardc(&["diff", "mlp.shard", "--emit", "html"]).out;
    assert!(page.contains("<p>The plans do not differ.</p>"), "{page}");
    assert!(page.contains("<details><summary>10 steps that are the same</summary>"), "{page}");
    let page = shardc(&["diff", "mlp.shard", "every_move.shir", "--emit", "html"]).out;
    for sign in ["<span class=\"sign\">- </span>", "<span class=\"sign\">+ </span>"] {
        assert!(page.contains(sign), "{sign}\n{page}");
    }
}

#[test]
fn the_page_loads_shows_its_totals_and_draws_what_is_pointed_at() {
    if !browser::is_there() {
        return;
    }
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mlp.html");
    std::fs::write(&file, shardc(&["explain", "mlp.shard", "--emit", "html"]).out)
        .expect("written");
    let browser = Browser::start("html");
    browser.open(&format!("file://{}", file.display()));

    let totals = browser.value("document.querySelector('.totals').innerText");
    let totals = totals.as_str().expect("text");
    assert!(totals.contains("219 us") && totals.contains("59.0 us"), "{totals}");
    assert_eq!(browser.value("document.querySelectorAll('.step.move').length"), 4);
    assert_eq!(browser.value("document.querySelectorAll('#panel svg').length"), 0);

    let panel = || {
        browser
            .value("document.getElementById('panel').innerText")
            .as_str()
            .expect("text")
            .to_string()
    };
    browser.point_at(".v[data-v=\"4\"]");
    assert!(panel().contains("h: bf16 BLF_yz(partialsum-x)"), "hover: {}", panel());
    assert!(panel().contains("F is cut into 16 parts of 4608 over y, z"), "{}", panel());
    assert!(panel().contains("each device along x holds a term of a sum"), "{}", panel());
    assert_eq!(
        browser.value("document.querySelectorAll('#panel rect').length"),
        64,
        "a device each"
    );
    let colours =
        "new Set([...document.querySelectorAll('#panel rect title')].map(t => t.textContent)).size";
    assert_eq!(browser.value(colours), 16, "a block for each place of y and z");

    browser.value("document.querySelector('.v[data-v=\"3\"]').focus()");
    assert!(panel().contains("x: bf16 BLE_x\n"), "focus: {}", panel());
    browser.value("document.querySelector('.v[data-v=\"1\"]').click()");
    assert!(panel().contains("w_in: bf16 E_xF_yz\n"), "tap: {}", panel());

    browser.value("document.querySelector('h1').click()");
    assert!(panel().starts_with("Layout\n"), "a tap beside all values: {}", panel());

    let colour = "getComputedStyle(document.body).backgroundColor";
    let scheme = |scheme: &str| {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.tell("Emulation.setEmulatedMedia", &json!({"features": features}));
        browser.value(colour)
    };
    assert_ne!(scheme("dark"), scheme("light"));

    let phone = json!({"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true});
    browser.tell("Emulation.setDeviceMetricsOverride", &phone);
    assert_eq!(browser.value("innerWidth"), 360);
    assert_eq!(
        browser.value("document.documentElement.scrollWidth"),
        360,
        "nothing sticks out of a phone"
    );

    assert_eq!(
        browser.value("performance.getEntriesByType('resource').length"),
        0,
        "nothing was fetched"
    );
    assert_eq!(browser.console(), Vec::<String>::new());
}
