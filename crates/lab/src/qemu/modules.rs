// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The modules of a kernel package that has been unpacked and never installed: which there are,
//! what each one needs, and their images in the order in which they can be loaded.
//!
//! What a module needs stands in the module itself (`depends=` in its `.modinfo` section), so no
//! `depmod` has to have run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::decompress;
use crate::LabError;

/// The modules of one kernel.
#[derive(Debug)]
pub struct Modules {
    /// Where each one is.
    files: BTreeMap<String, PathBuf>,
    /// Those that are part of the kernel itself.
    built_in: BTreeSet<String>,
}

/// A module, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, with underscores.
    pub name: String,
    /// The image that the kernel takes.
    pub image: Vec<u8>,
}

impl Modules {
    /// Looks through `lib/modules/VERSION`.
    ///
    /// **Errors**: it cannot be read.
    pub fn scan(directory: &Path) -> Result<Modules, LabError> {
        let list = directory.join("modules.builtin");
        let text = fs::read_to_string(&list).map_err(LabError::file("read", &list))?;
        let built_in = text.lines().filter_map(|line| module_name(Path::new(line))).collect();
        let mut modules = Modules { files: BTreeMap::new(), built_in };
        let mut pending = vec![directory.join("kernel")];
        while let Some(directory) = pending.pop() {
            let failed = LabError::file("read", &directory);
            for entry in fs::read_dir(&directory).map_err(&failed)? {
                let path = entry.map_err(&failed)?.path();
                if path.is_dir() {
                    pending.push(path);
                } else if let Some(name) = module_name(&path) {
                    modules.files.insert(name, path);
                }
            }
        }
        Ok(modules)
    }

    /// Whether the kernel has it, as a module or in itself.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.built_in.contains(name)
    }

    /// The images of these modules and of all that they need, each one after what it needs. What is
    /// part of the kernel needs no image.
    ///
    /// **Errors**: one is missing or cannot be unpacked.
    pub fn closure(&self, wanted: &[&str]) -> Result<Vec<Module>, LabError> {
        let (mut ordered, mut seen) = (Vec::new(), BTreeSet::new());
        for name in wanted {
            self.visit(name, &mut seen, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        ordered: &mut Vec<Module>,
    ) -> Result<(), LabError> {
        if self.built_in.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let file = self.files.get(name).ok_or_else(|| LabError::Packages {
            what: "use the kernel".to_owned(),
            why: format!("it has no module {name}"),
        })?;
        let image = read_image(file)?;
        for needed in needs(&image) {
            self.visit(&needed, seen, ordered)?;
        }
        ordered.push(Module { name: name.to_owned(), image });
        Ok(())
    }
}

/// `.../sch-taprio.ko.xz` -> `sch_taprio`.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (name, rest) = name.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

fn read_image(file: &Path) -> Result<Vec<u8>, LabError> {
    let bytes = fs::read(file).map_err(LabError::file("read", file))?;
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return Ok(bytes),
    };
    decompress::with(program, &bytes, file)
}

/// What a module says it needs.
fn needs(image: &[u8]) -> Vec<String> {
    let field = image.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"depends="));
    let text = String::from_utf8_lossy(field.unwrap_or_default()).replace('-', "_");
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of the parts that matter here.
    fn image(depends: &str) -> Vec<u8> {
        format!("\x7fELF\0license=GPL\0depends={depends}\0name=x\0").into_bytes()
    }

    fn tree(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("timewire-{name}-{}", std::process::id()));
        let kernel = root.join("kernel/net");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(root.join("modules.builtin"), "kernel/net/packet/af_packet.ko\n").unwrap();
        for (file, depends) in
            [("igb.ko", "i2c-algo-bit,dca"), ("i2c-algo-bit.ko", ""), ("dca.ko", "af_packet")]
        {
            fs::write(kernel.join(file), image(depends)).unwrap();
        }
        fs::write(kernel.join("notes.txt"), "no module").unwrap();
        root
    }

    #[test]
    fn t0_every_module_comes_after_what_it_needs_and_once() {
        let root = tree("modules");
        let modules = Modules::scan(&root).unwrap();
        assert!(modules.has("i2c_algo_bit") && modules.has("af_packet") && !modules.has("notes"));
        let order = modules.closure(&["igb", "dca", "af_packet"]).unwrap();
        let names: Vec<_> = order.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["i2c_algo_bit", "dca", "igb"]);
        let error = modules.closure(&["sch_taprio"]).unwrap_err();
        assert!(error.to_string().contains("sch_taprio"), "{error}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn t0_compressed_modules_have_the_same_names() {
        let name = |text: &str| module_name(Path::new(text));
        assert_eq!(name("a/sch_taprio.ko.xz").as_deref(), Some("sch_taprio"));
        assert_eq!(name("a/snd-hda.ko.zst").as_deref(), Some("snd_hda"));
        assert_eq!(name("a/modules.order"), None);
        assert_eq!(name("a/x.ko.bak"), None);
    }
}
