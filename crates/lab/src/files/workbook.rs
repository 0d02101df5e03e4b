//! One workbook: findings, cells, seconds and facts, each on a sheet that can be filtered; numbers are numbers.

use rust_xlsxwriter::{Format, Workbook, XlsxError};

use super::sheet::{Sheet, Value};
use crate::error::Error;
use crate::model::Run;

/// Rows that a sheet has room for.
const ROWS_MAX: usize = 1_048_575;
/// Characters that a place has room for.
const TEXT_MAX: usize = 32_767;

/// The file.
///
/// # Errors
/// When it cannot be made.
pub fn xlsx(runs: &[Run]) -> Result<Vec<u8>, Error> {
    let mut book = Workbook::new();
    let sheets = [Sheet::findings(runs), Sheet::cells(runs), Sheet::seconds(runs), Sheet::facts(runs)];
    let made = sheets.iter().filter(|s| !s.rows.is_empty()).try_for_each(|sheet| add(&mut book, sheet));
    made.and_then(|()| book.save_to_buffer()).map_err(|e| Error::format("the workbook", e))
}

fn add(book: &mut Workbook, sheet: &Sheet) -> Result<(), XlsxError> {
    let bold = Format::new().set_bold();
    let page = book.add_worksheet();
    page.set_name(sheet.name)?;
    for (column, head) in sheet.heads.iter().enumerate() {
        page.write_string_with_format(0, column as u16, *head, &bold)?;
    }
    let rows = sheet.rows.len().min(ROWS_MAX);
    for (nth, row) in sheet.rows.iter().take(rows).enumerate() {
        for (column, value) in row.iter().enumerate() {
            let at = (nth as u32 + 1, column as u16);
            match value {
                Value::Nothing => {}
                Value::Number(number) => {
                    page.write_number(at.0, at.1, *number)?;
                }
                Value::Text(text) => {
                    page.write_string(at.0, at.1, text.chars().take(TEXT_MAX).collect::<String>())?;
                }
            }
        }
    }
    page.set_freeze_panes(1, 0)?;
    page.autofilter(0, 0, rows as u32, sheet.heads.len().saturating_sub(1) as u16)?;
    page.set_autofit_max_width(420);
    page.autofit();
    Ok(())
}
