//! Writes the report of each review, and of two beside each other, into a directory, for people who work on reports.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("name a directory")?;
    let dir = std::path::Path::new(&dir);
    let extra = lab::report::Extra::default();
    for review in lab::published::REVIEWS {
        let run = lab::published::run(review.name)?;
        std::fs::write(dir.join(format!("{}.html", review.name)), lab::report::page(&[run], &extra))?;
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
