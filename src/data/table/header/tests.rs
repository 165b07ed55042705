//! Tests of the detection of headers.

use super::*;

fn judged(text: &str, column: Option<usize>) -> FirstLine {
    let line = |number| Line { file: 0, number };
    let mut rows = (1..).map(line).zip(text.lines().map(|line| line.split(',').collect::<StringRecord>()));
    let (_, first) = rows.next().unwrap();
    let below: Vec<TableRow> = rows.collect();
    judge(&first, &below.iter().collect::<Vec<_>>(), column)
}

#[test]
fn words_above_numbers_dates_or_gaps_are_names() {
    for text in [
        "Month,Passengers\n1949-01,100\n1949-02,101",
        "left,mid\n-2,-1\n0,1",
        "a,b\n0.5,1e-3\n.5,-2.",
        ",a\n0,1\n1,2",
        "when,what\n2020-01-01 12:30:00,up\n2020-01-02 08:00:00,down",
        "a,b\nNA,1\n2,\n3,4",
    ] {
        assert_eq!(judged(text, None), FirstLine::Names, "{text}");
    }
    assert_eq!(judged("day,state\nMon,1\nTue,0", Some(1)), FirstLine::Names);
}

#[test]
fn numbers_and_recurring_values_are_data() {
    for text in ["1,2\n3,x", "2020-01,a\n2020-02,b", "a,b\nb,c", "a,a\nb,c"] {
        assert_eq!(judged(text, None), FirstLine::Data, "{text}");
    }
    assert_eq!(judged("1,up\n2,down", Some(1)), FirstLine::Data);
}

#[test]
fn rising_integers_unlike_those_below_may_be_names() {
    let below = "5,30,7\n6,10,9\n5,20,8\n6,30,7\n5,10,9\n6,20,8\n";
    for header in ["2019,2020,2021", "2021,2020,2019", "10,40,50"] {
        assert_eq!(judged(&format!("{header}\n{below}"), None), FirstLine::Numbers, "{header}");
    }
    assert_eq!(judged(&format!("2019,2020,2021\n{below}"), Some(1)), FirstLine::Numbers);
    assert_eq!(judged(&format!("0,1,2\n{}", "1,0,2\n2,2,0\n".repeat(3)), None), FirstLine::Numbers);
    assert_eq!(judged(&format!("0,1,2\n{}", "1,2,3\n0,9,1\n".repeat(3)), None), FirstLine::Data);
    for data in ["6,20,8", "2021,2019,2020", "4,20,9"] {
        assert_eq!(judged(&format!("{data}\n{below}"), None), FirstLine::Data, "{data}");
    }
    // Numbers with equal distances, or four that rise or fall, may also recur in their columns.
    let years = "2017,2022,2001,2013\n2027,2032,1991,2015\n2011,2011,2012,2013\n".repeat(3);
    for header in ["2010,2011,2012,2013", "2017,2022,2023,2030", "2030,2022,2012,2001"] {
        assert_eq!(judged(&format!("{header}\n{years}"), None), FirstLine::Numbers, "{header}");
    }
    assert_eq!(judged(&format!("2017,2022,2023,2001\n{years}"), None), FirstLine::Data);
    let months: String =
        (0..9).map(|row| format!("m{row},{},{},2012\n", 2011 + row * 5 % 7, 2010 + row * 3 % 8)).collect();
    assert_eq!(judged(&format!("month,2011,2012,2013\n{months}"), None), FirstLine::Numbers);
    assert_eq!(judged(&format!("m3,2011,2012,2013\n{months}"), None), FirstLine::Data);
    // Next to a word that does not recur in its column, one number is enough, in any order.
    let regions = "r1,5,6\nr2,6,5\n".repeat(3);
    for header in
        ["region,2019,2020", "region,2020,2019", "region,0.5,0.9", "region,2019-01,2019-02", "region,,2019"]
    {
        assert_eq!(judged(&format!("{header}\n{regions}"), None), FirstLine::Numbers, "{header}");
    }
    assert_eq!(judged(&format!("r2,2019,2020\n{}", "r1,5,6\nr2,7,6\n".repeat(3)), None), FirstLine::Numbers);
    for data in ["r1,2020,2019", "r3,5,7", "r3,5,5"] {
        assert_eq!(judged(&format!("{data}\n{regions}"), None), FirstLine::Data, "{data}");
    }
    assert_eq!(judged("id,1,2,3\n7,1,0,2\n8,0,1,1", None), FirstLine::Unknown);
    let grades: String = (0..20).map(|row| format!("name{row},{},3,{}\n", row % 4, row % 3)).collect();
    assert_eq!(judged(&format!("student,1,2,3\n{grades}"), None), FirstLine::Numbers);
    assert_eq!(judged(&format!("name3,1,2,3\n{grades}"), None), FirstLine::Data);
    let countries = "de,5,6\nfr,6,5\n".repeat(3);
    assert_eq!(judged(&format!("it,2020,2021\n{countries}"), Some(1)), FirstLine::Numbers);
    let counting: String = (0..50).map(|row| format!("{},{}\n", 2 * row, 2 * row + 1)).collect();
    assert_eq!(judged(&counting, None), FirstLine::Data);
}

#[test]
fn words_new_to_their_columns_may_be_names() {
    let scores = "A,0,5,4,1,3\nB,5,1,2,3,4\n".repeat(15);
    assert_eq!(judged(&format!("class,1,2,3,4,5\n{scores}"), None), FirstLine::NewWords);
    assert_eq!(judged(&format!("class,1,2,3,4,5\n{scores}"), Some(1)), FirstLine::NewWords);
    assert_eq!(judged(&format!("B,1,2,3,4,5\n{scores}"), None), FirstLine::Data);
    let moves = "x,y\ny,z\n".repeat(15);
    assert_eq!(judged(&format!("from,to\n{moves}z,from\n"), None), FirstLine::NewWords);
    let tags = "runs,V,N\nfast,A,N\n".repeat(15);
    assert_eq!(judged(&format!("word,tag,tag\n{tags}"), None), FirstLine::NewWords);
    assert_eq!(judged(&format!("word,tag,label\n{tags}cat,N,label\n"), None), FirstLine::NewWords);
    assert_eq!(
        judged(&format!("runs,tag,tag\n{}", "runs,tag,N\nfast,A,tag\n".repeat(15)), None),
        FirstLine::Data
    );
}

#[test]
fn unique_words_above_recurring_ones_suggest_header() {
    let tags = format!("word,tag\n{}", "runs,V\nfast,A\ncat,N\n".repeat(10));
    assert_eq!(judged(&tags, None), FirstLine::ProbablyNames);
    assert_eq!(judged(&tags, Some(1)), FirstLine::ProbablyNames);
    assert_eq!(judged("word,tag\nruns,V\nfast,A", None), FirstLine::Unknown);
    let regions = "region,2019,2020\n".to_string() + &"south,high,low\nnorth,low,low\n".repeat(3);
    assert_eq!(judged(&regions, None), FirstLine::ProbablyNames);
    assert_eq!(judged(&regions, Some(1)), FirstLine::ProbablyNames);
    let all_differ: String = (0..50).map(|row| format!("word{row}\n")).collect();
    assert_eq!(judged(&all_differ, None), FirstLine::Unknown);
    // A year among names.
    assert_eq!(judged("country,2019\n5,6\n7,8", None), FirstLine::Unknown);
}
