// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page in a real browser without a window: no error on its console, and no sideways scrolling
//! on a phone, at a desk or on a wall, with every case unfolded.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the sample is made up of small numbers"
)]

mod sample;
mod sheet_sample;
mod trace_sample;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use timewire_report::html;
use timewire_report::sheet::sheet_html;
use timewire_report::timeline::{TimelineOptions, page};

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

#[test]
fn t3_sheet_in_a_browser() {
    let Some(browser) = browser() else {
        eprintln!("SKIP: none of {} is installed", BROWSERS.join(", "));
        return;
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sheet-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let sheet = sheet_html(&sheet_sample::sheet("a name of some length"));
    let widths = [360, 768, 2560];
    std::fs::write(dir.join("widths.html"), measuring_page(&sheet, &widths)).unwrap();
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

/// Acts on the timeline as a reader would, and writes down what it became.
const ACTS: &str = "<p id=\"acted\"></p><script>addEventListener('load', () => {\
    const root = document.querySelector('.timeline'), canvas = root.querySelector('canvas');\
    const found = [];\
    const inked = () => {\
      const copy = document.createElement('canvas');\
      [copy.width, copy.height] = [canvas.width, canvas.height];\
      const context = copy.getContext('2d', { willReadFrequently: true });\
      context.drawImage(canvas, 0, 0);\
      const { data } = context.getImageData(0, 0, copy.width, copy.height);\
      const seen = new Set();\
      let sum = 7;\
      for (let i = 0; i < data.length; i += 4) {\
        const c = data[i] << 16 | data[i + 1] << 8 | data[i + 2];\
        seen.add(c);\
        sum = (sum * 31 + c) % 1000000007;\
      }\
      return [seen.size, sum];\
    };\
    const note = () => found.push([root.dataset.chosen, ...inked()].join('/'));\
    const key = name => {\
      canvas.dispatchEvent(new KeyboardEvent('keydown', { key: name, cancelable: true }));\
      note();\
    };\
    note();\
    ['Escape', 'Home', '+', 'ArrowRight', 'ArrowLeft', 'w', 'ArrowDown', 'ArrowUp'].forEach(key);\
    root.querySelectorAll('button[data-journey]')[1].click();\
    note();\
    canvas.focus();\
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -1, cancelable: true }));\
    note();\
    const shown = getComputedStyle(root.querySelector('.still')).display;\
    const said = root.querySelector('.said').textContent.slice(0, 9);\
    document.getElementById('acted').textContent = found.join(' ') + '|' + shown + '|' + said;\
  });</script>";

#[test]
fn t3_timeline_in_a_browser() {
    let Some(browser) = browser() else {
        eprintln!("SKIP: none of {} is installed", BROWSERS.join(", "));
        return;
    };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("line-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let timeline = page(&trace_sample::analysed().input, &TimelineOptions::default());
    let acted = timeline.replace("</body>", &format!("{ACTS}</body>"));
    std::fs::write(dir.join("timeline.html"), acted).unwrap();
    let (dom, log) = load(&browser, &dir, "timeline.html");
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the browser complains: {console:#?}");
    let (_, found) = dom.split_once("<p id=\"acted\">").unwrap();
    let (found, _) = found.split_once("</p>").unwrap();
    let parts: Vec<&str> = found.split('|').collect();
    let states: Vec<Vec<&str>> = parts[0].split(' ').map(|it| it.split('/').collect()).collect();
    let chosen: Vec<&str> = states.iter().map(|state| state[0]).collect();
    assert_eq!(&chosen[..7], ["4", "", "", "", "", "", "4"], "{found}");
    assert_eq!(&chosen[7..9], ["5", "4"], "the next and the one before");
    assert!(states.iter().all(|state| state[1].parse::<u32>().unwrap() > 8), "{found}");
    let ink: Vec<&str> = states.iter().map(|state| state[2]).collect();
    for at in [1, 2, 3, 4, 6, 7, 9, 10] {
        assert_ne!(ink[at - 1], ink[at], "step {at} changes the picture: {found}");
    }
    assert_eq!(ink[5], ink[3], "right and left again");
    assert_eq!(ink[8], ink[6], "down and up again");
    assert_eq!(&parts[1..], ["none", "Journey 1"], "{found}");

    let widths = [360, 768, 2560];
    std::fs::write(dir.join("widths.html"), measuring_page(&timeline, &widths)).unwrap();
    let (dom, log) = load(&browser, &dir, "widths.html");
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
