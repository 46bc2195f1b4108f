//! Pictures with words on one HTML page that needs nothing else.

use std::path::Path;

use anyhow::{Context, Result};

use super::escape;

/// A page being written.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
    pictures: Vec<(String, String)>,
}

impl Page {
    /// An empty page.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: String::new(),
            pictures: Vec::new(),
        }
    }

    /// A paragraph.
    pub fn say(&mut self, text: &str) {
        self.body.push_str(&format!("<p>{}</p>\n", escape(text)));
    }

    /// Text as it stands: a table.
    pub fn verbatim(&mut self, text: &str) {
        self.body.push_str(&format!("<pre>{}</pre>\n", escape(text)));
    }

    /// A picture, which also becomes a file of this name.
    pub fn picture(&mut self, name: &str, svg: String) {
        self.body.push_str(&svg);
        self.pictures.push((name.to_owned(), svg));
    }

    /// Writes `index.html` and every picture into a folder, which is made where it is missing.
    ///
    /// # Errors
    /// Where the folder cannot be made or a file not be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let title = escape(&self.title);
        let html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
             <style>body {{ font-family: sans-serif; max-width: 1200px; margin: 2em auto; color: #222; }} \
             pre {{ overflow-x: auto; font-size: 12px; }} svg {{ display: block; margin: 1em 0; }}</style></head>\n\
             <body><h1>{title}</h1>\n{}</body></html>\n",
            self.body
        );
        let files = self
            .pictures
            .iter()
            .map(|(name, svg)| (name.as_str(), svg.as_str()));
        for (name, text) in files.chain([("index.html", html.as_str())]) {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_and_its_pictures_are_files() {
        let folder = std::env::temp_dir().join(format!("migpool-sim-page-{}", std::process::id()));
        let mut page = Page::new("a & b");
        page.say("1 < 2");
        page.picture("p.svg", "<svg/>".to_owned());
        page.write(&folder).unwrap();
        let html = std::fs::read_to_string(folder.join("index.html")).unwrap();
        assert!(html.contains("<h1>a &amp; b</h1>") && html.contains("1 &lt; 2") && html.contains("<svg/>"));
        assert_eq!(std::fs::read_to_string(folder.join("p.svg")).unwrap(), "<svg/>");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
