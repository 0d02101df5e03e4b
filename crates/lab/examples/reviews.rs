//! Writes the report of each review with its files, and of two beside each other, into a directory, and a store of all of
//! them: for people who work on reports. Further arguments are results of their own.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("name a directory")?;
    let dir = std::path::Path::new(&dir);
    let extra = lab::report::Extra::default();
    for review in lab::published::REVIEWS {
        let run = lab::published::run(review.name)?;
        let store = lab::store::Store::at(dir.join("store"));
        store.keep(&run)?;
        store.write_index()?;
        let runs = [run];
        let page = lab::report::page(&runs, &extra);
        lab::files::write(&runs, &page, &dir.join(review.name))?;
        std::fs::write(dir.join(format!("{}.html", review.name)), page)?;
    }
    let runs = [lab::published::run("perc12")?, lab::published::run("perc11")?];
    std::fs::write(dir.join("beside.html"), lab::report::page(&runs, &extra))?;
    for path in std::env::args().skip(2) {
        let run = lab::model::Run::read(std::path::Path::new(&path))?;
        let name = path.rsplit('/').find(|p| !p.is_empty()).unwrap_or("run").to_owned();
        std::fs::write(dir.join(format!("{name}.html")), lab::report::page(&[run], &extra))?;
    }
    Ok(())
}
