//! Tokens over their life.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;

const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn wish(name: &str, role: Role) -> TokenCreate {
    TokenCreate { name: name.to_owned(), role, expires_in_seconds: None }
}

#[tokio::test]
async fn a_token_is_kept_by_its_hash_and_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, broken) = Tokens::open(dir.path());
    assert!(broken.is_none() && tokens.list().unwrap().tokens.is_empty());
    let made = tokens.make(&wish("backup", Role::Operate)).await.unwrap();
    let text = made.token.reveal().to_owned();
    let holder = tokens.check(&text, FROM).unwrap();
    assert_eq!((holder.name.as_str(), holder.role, &holder.id), ("backup", Role::Operate, &made.view.id));
    tokens.keep_uses().await;

    let file = dir.path().join("tokens.toml");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let (_, secret) = text::parts(&text).unwrap();
    assert!(!fs::read_to_string(&file).unwrap().contains(secret), "the secret is nowhere");

    let (again, _) = Tokens::open(dir.path());
    assert_eq!(again.check(&text, FROM).unwrap().role, Role::Operate);
    let listed = again.list().unwrap().tokens;
    assert!(listed[0].used_unix_seconds >= Some(listed[0].created_unix_seconds), "{listed:?}");
    again.delete(&made.view.id).await.unwrap();
    assert_eq!(again.delete(&made.view.id).await.unwrap_err().code, "token_unknown");
    assert_eq!(again.check(&text, FROM).unwrap_err().why, Why::Unknown);
    let (empty, _) = Tokens::open(dir.path());
    assert!(empty.list().unwrap().tokens.is_empty());
}

#[tokio::test]
async fn what_is_wrong_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, _) = Tokens::open(dir.path());
    let made = tokens.make(&wish("a", Role::Admin)).await.unwrap();
    let text = made.token.reveal();
    let other = tokens.make(&wish("b", Role::Read)).await.unwrap();
    let (_, secret) = text::parts(other.token.reveal()).unwrap();
    let mixed = format!("ashlar_{}_{secret}", made.view.id);
    assert_eq!(tokens.check(&mixed, FROM).unwrap_err().why, Why::Wrong("a".into()), "another's secret");
    for wrong in ["", "ashlar", &text[1..], &format!("{text} ")] {
        assert_eq!(tokens.check(wrong, "10.0.0.9".parse().unwrap()).unwrap_err().why, Why::Unknown);
    }
    assert!(tokens.check(text, FROM).is_ok());
    assert_eq!(tokens.make(&wish("a", Role::Admin)).await.unwrap_err().code, "token_exists");
    for name in ["", "a b", "a/b", &"x".repeat(65)] {
        assert_eq!(tokens.make(&wish(name, Role::Read)).await.unwrap_err().kind, Kind::Usage, "{name}");
    }
    let at_once = TokenCreate { expires_in_seconds: Some(0), ..wish("c", Role::Read) };
    assert_eq!(tokens.make(&at_once).await.unwrap_err().kind, Kind::Usage);
}

#[tokio::test]
async fn a_token_ends_by_its_time_and_leaves_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, _) = Tokens::open(dir.path());
    let short = TokenCreate { expires_in_seconds: Some(1), ..wish("a", Role::Read) };
    let made = tokens.make(&short).await.unwrap();
    tokens.ended(&made.view.id).await;
    assert_eq!(tokens.check(made.token.reveal(), FROM).unwrap_err().why, Why::Ended("a".into()));
    assert_ne!(tokens.make(&short).await.unwrap().view.id, made.view.id);
}

#[tokio::test]
async fn whoever_waits_for_the_end_of_a_token_sees_that_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, _) = Tokens::open(dir.path());
    let made = tokens.make(&wish("a", Role::Read)).await.unwrap();
    let waits = {
        let (tokens, id) = (tokens.clone(), made.view.id.clone());
        tokio::spawn(async move { tokens.ended(&id).await })
    };
    tokio::task::yield_now().await;
    tokens.delete(&made.view.id).await.unwrap();
    waits.await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_lets_nobody_in_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    for damaged in ["version = 9\n", "version = 1\nsurprise = 1\n", "version = 1\n[[token]]\nid = \"a\"\n"] {
        secrets::replace(&path, damaged.as_bytes()).unwrap();
        let (tokens, broken) = Tokens::open(dir.path());
        assert!(broken.is_some(), "{damaged}");
        assert!(tokens.list().is_err() && tokens.make(&wish("a", Role::Admin)).await.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
    }
}
