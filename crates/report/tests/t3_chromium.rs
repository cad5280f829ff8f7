// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page in a real browser without a window: no error on its console, and no sideways scrolling
//! on a phone, at a desk or on a wall, with every case unfolded.

use crate::run_report_sample;
use crate::sample;
use crate::trace_sample;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use timewire_report::html;
use timewire_report::packet_paths::{PacketPathsInput, page};
use timewire_report::run_report::run_report_html;

/// Names under which distributions install the browser.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = BROWSERS.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    all.into_iter().find(|file| file.is_file())
}

/// What a page became after it loaded, and what the browser said meanwhile.
fn load(browser: &Path, dir: &Path, page: &str) -> (String, String) {
    let output = Command::new("timeout")
        .args(["--kill-after=2", "40"])
        .arg(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update"])
        .args(["--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"])
        .arg("--virtual-time-budget=10000")
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", dir.join(page).display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "browser failed:\n{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

/// A page that shows the report in frames of several widths and writes down how wide each became.
fn measuring_page(report: &str, widths: &[u32]) -> String {
    let inner = report.replace('&', "&amp;").replace('"', "&quot;");
    let mut page = String::from("<!doctype html><meta charset=\"utf-8\"><body>\n");
    for width in widths {
        page.push_str(&format!(
            "<iframe style=\"width:{width}px;height:900px;border:0\" srcdoc=\"{inner}\"></iframe>\n"
        ));
    }
    page + "<p id=\"widths\"></p><script>\
        addEventListener('load', () => {\
          document.getElementById('widths').textContent = [...document.querySelectorAll('iframe')]\
            .map(frame => {\
              const page = frame.contentDocument;\
              page.querySelectorAll('details').forEach(one => { one.open = true; });\
              return page.documentElement.clientWidth + ':' + page.documentElement.scrollWidth;\
            }).join(' ');\
        });</script>"
}

#[test]
fn t3_page_in_a_browser() {
    let Some(browser) = browser() else {
        eprintln!("SKIP: none of {} is installed", BROWSERS.join(", "));
        return;
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let report = html(&sample::summary());
    let widths = [360, 390, 768, 1280, 2560];
    std::fs::write(dir.join("report.html"), &report).unwrap();
    std::fs::write(dir.join("widths.html"), measuring_page(&report, &widths)).unwrap();

    let (dom, log) = load(&browser, &dir, "report.html");
    assert!(dom.contains("verdict fail") && dom.trim_end().ends_with("</html>"));
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the browser complains: {console:#?}");

    let (dom, log) = load(&browser, &dir, "widths.html");
    let (_, found) = dom.split_once("<p id=\"widths\">").unwrap();
    let (found, _) = found.split_once("</p>").unwrap();
    let pairs: Vec<&str> = found.split_whitespace().collect();
    assert_eq!(pairs.len(), widths.len(), "nothing measured: {found:?}\n{log}");
    for (pair, width) in pairs.iter().zip(widths) {
        let (room, content) = pair.split_once(':').unwrap();
        let (room, content): (u32, u32) = (room.parse().unwrap(), content.parse().unwrap());
        // The vertical scroll bar takes some of the frame.
        assert!((width - 20..=width).contains(&room), "a frame of {width} px has {room}");
        assert!(content <= room, "{content} px of content scroll sideways in {room} px");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A page at several widths: the browser complains of nothing, and nothing scrolls sideways.
fn fits(name: &str, page: &str) {
    let Some(browser) = browser() else {
        eprintln!("SKIP: none of {} is installed", BROWSERS.join(", "));
        return;
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let widths = [360, 768, 2560];
    std::fs::write(dir.join("widths.html"), measuring_page(page, &widths)).unwrap();
    let (dom, log) = load(&browser, &dir, "widths.html");
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the browser complains: {console:#?}");
    let (_, found) = dom.split_once("<p id=\"widths\">").unwrap();
    let (found, _) = found.split_once("</p>").unwrap();
    assert_eq!(found.split_whitespace().count(), widths.len(), "{found:?}\n{log}");
    for pair in found.split_whitespace() {
        let (room, content) = pair.split_once(':').unwrap();
        let (room, content): (u32, u32) = (room.parse().unwrap(), content.parse().unwrap());
        assert!(content <= room, "{content} px of content scroll sideways in {room} px");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn t3_run_report_in_a_browser() {
    fits("run-report", &run_report_html(&run_report_sample::report("a name of some length")));
}

#[test]
fn t3_packet_paths_in_a_browser() {
    let analysed = trace_sample::analysed();
    let (counts, rows) = (analysed.analysis.counts(), analysed.analysis.rows());
    let input = PacketPathsInput {
        counts: &counts,
        rows: &rows,
        longest: analysed.analysis.longest(),
        names: &analysed.names,
    };
    fits("packet-paths", &page(&input, &analysed.input, ""));
}
