//! Aligned columns.

/// Rows under headings. Columns of numbers stand to the right.
pub struct Table {
    heads: Vec<(&'static str, bool)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// A table with these headings; one that begins with ">" names a column of numbers.
    pub fn new(heads: &[&'static str]) -> Table {
        let heads = heads.iter().map(|h| (h.trim_start_matches('>'), h.starts_with('>'))).collect();
        Table { heads, rows: vec![], indent: 2 }
    }

    /// Without an indent.
    pub fn flush_left(mut self) -> Table {
        self.indent = 0;
        self
    }

    /// One more row.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.heads.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines.
    pub fn lines(&self) -> Vec<String> {
        let width = |c: usize| {
            let cells = self.rows.iter().map(|r| r[c].chars().count());
            cells.max().unwrap_or(0).max(self.heads[c].0.chars().count())
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let mut out = " ".repeat(self.indent);
            for (c, cell) in cells.iter().enumerate() {
                let pad = widths[c] - cell.chars().count();
                if c > 0 {
                    out.push_str("  ");
                }
                if self.heads[c].1 {
                    out.push_str(&" ".repeat(pad));
                    out.push_str(cell);
                } else {
                    out.push_str(cell);
                    out.push_str(&" ".repeat(pad));
                }
            }
            out.trim_end().to_owned()
        };
        let mut lines = vec![line(self.heads.iter().map(|h| h.0).collect())];
        lines.extend(self.rows.iter().map(|r| line(r.iter().map(String::as_str).collect())));
        lines
    }

    /// Prints it.
    pub fn print(&self) {
        for line in self.lines() {
            super::print(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut t = Table::new(&["NAME", ">SIZE"]).flush_left();
        t.row(vec!["a".into(), "4 KiB".into()]);
        t.row(vec!["longer".into(), "1.5 GiB".into()]);
        assert_eq!(t.lines(), ["NAME       SIZE", "a         4 KiB", "longer  1.5 GiB"]);
    }
}
