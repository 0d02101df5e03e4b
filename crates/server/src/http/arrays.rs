//! Routes of the server and of whole arrays.

use api::{
    AlarmView, ArrayView, Arrays, Buffers, Clients, CreateRequest, Created, Done, FindRequest, Forced, FoundArrays,
    ImportRequest, Imported, Iostats, Kind, Placement, Problem, ServerView, Severity, VERSION, WhoseClients,
};
use axum::extract::{Path, Query, State};
use futures::future::join_all;
use rt::Nanos;

use super::answer::Body;
use super::{Answer, Context};
use crate::daemon::arrays::{import_and_serve, log_open};
use crate::daemon::{Data, name_taken};
use crate::ops::open::Opened;
use crate::ops::{create as make, destroy as end, export as handed_over, find as look_for, forget as forgotten};
use crate::problem;
use crate::subsystem::DIRECT;

pub async fn server(State(c): State<Context>) -> Answer<ServerView> {
    let program = c.program.clone();
    let ask = c.data.ask(|data| async move {
        Ok(ServerView {
            version: VERSION,
            program,
            pid: std::process::id(),
            arrays: data.names(),
            nbd: data.nbd.borrow().clone(),
            nvme: data.nvme.borrow().clone(),
        })
    });
    Answer(ask.await)
}

pub async fn stop_server(State(c): State<Context>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move { data.refuse_if_used("this Ashlar", (None, None), how.force).await });
    if let Err(problem) = ask.await {
        return Answer(Err(problem));
    }
    c.stop_now.send("requested over the control socket");
    Answer(Ok(Done::new("the server is stopping")))
}

pub async fn clients(State(c): State<Context>, Query(whose): Query<WhoseClients>) -> Answer<Clients> {
    let ask = c.data.ask(move |data| async move {
        let array = match &whose.array {
            Some(array) if array == DIRECT => Some(DIRECT.to_owned()),
            Some(array) => Some(data.array(array)?.array.first().name()),
            None => None,
        };
        if let (Some(array), Some(volume)) = (array.as_deref().filter(|array| *array != DIRECT), &whose.volume)
            && data.array(array)?.array.first().volume(volume).is_none()
        {
            let (what, why) = (format!("volume {array}/{volume}"), "there is no volume of this name");
            let todo = format!("`ashlar volume list {array}` lists its volumes");
            return Err(Problem::new(Kind::NotFound, "volume_unknown", what, why, todo));
        }
        Ok(Clients { version: VERSION, clients: data.clients(array.as_deref(), whose.volume.as_deref()) })
    });
    Answer(ask.await)
}

pub async fn status(State(c): State<Context>) -> Answer<Arrays> {
    let ask = c.data.ask(|data| async move {
        let served: Vec<Opened> = data.served.borrow().values().cloned().collect();
        let arrays = join_all(served.iter().map(Opened::view)).await;
        Ok(Arrays { arrays, absent: data.absent(), not_served: not_served(&data), ..of_server(&data) })
    });
    Answer(ask.await)
}

/// What a server says of itself, without arrays.
fn of_server(data: &Data) -> Arrays {
    let rt = &data.world.rt;
    Arrays {
        version: VERSION,
        served: true,
        nbd: data.nbd.borrow().clone(),
        nvme: data.nvme.borrow().clone(),
        buffers: Some(buffers()),
        linger_us: Some(rt.linger().as_micros() as u64),
        congestion: Some(rt.congestion().to_string()),
        spares: data.spares.left(),
        alarms: data.nbd_is_open().into_iter().map(nbd_alarm).collect(),
        ..Arrays::default()
    }
}

/// An NBD export that is open to others, as a standing alarm.
fn nbd_alarm(what: String) -> AlarmView {
    let todo = "Serve NBD on loopback or a Unix socket, or use NVMe/TCP, which can restrict hosts";
    AlarmView { code: "nbd_open".to_owned(), severity: Severity::Warning, seat: None, what, todo: todo.to_owned() }
}

/// Known arrays that are neither served nor missed.
fn not_served(data: &Data) -> Vec<String> {
    let known = data.world.registry.list().unwrap_or_default();
    let served: Vec<_> = data.served.borrow().values().map(|o| o.array.first().uuid()).collect();
    let absent = data.absent.borrow();
    known.into_iter().filter(|k| !served.contains(&k.uuid) && !absent.contains_key(&k.name)).map(|k| k.name).collect()
}

pub async fn status_of(State(c): State<Context>, Path(array): Path<String>) -> Answer<Arrays> {
    let ask = c.data.ask(|data| async move {
        let arrays: Vec<ArrayView> = vec![data.array(&array)?.view().await];
        Ok(Arrays { arrays, ..of_server(&data) })
    });
    Answer(ask.await)
}

pub async fn iostat(State(c): State<Context>) -> Answer<Iostats> {
    let ask = c.data.ask(|data| async move {
        let served: Vec<(String, Opened)> = data.served.borrow().iter().map(|(n, o)| (n.clone(), o.clone())).collect();
        let mut arrays = Vec::with_capacity(served.len());
        for (name, opened) in served {
            let counted = opened.array.iostat().await.map_err(|f| problem::fault(format!("array {name}"), f))?;
            arrays.push(counted);
        }
        let Nanos(now) = data.world.rt.now();
        Ok(Iostats { version: VERSION, at_millis: now / 1_000_000, arrays })
    });
    Answer(ask.await)
}

pub async fn placement(State(c): State<Context>) -> Answer<Placement> {
    Answer(c.data.ask(|data| async move { Ok(data.placement()) }).await)
}

pub async fn create(State(c): State<Context>, Body(request): Body<CreateRequest>) -> Answer<Created> {
    let ask = c.data.ask(move |data| async move {
        if data.served.borrow().contains_key(&request.name) {
            return Err(name_taken(&request.name));
        }
        let (opened, plan) = make::run(&data.world, &request, make::Host::Server).await?;
        let view = opened.view().await;
        log_open(&opened).await;
        data.serve(opened).await?;
        tracing::info!("array {}: created, {} {}", view.name, plan.level, plan.scheme);
        Ok(Created { version: VERSION, name: view.name, uuid: Some(view.uuid), served: true, plan })
    });
    Answer(ask.await)
}

pub async fn find(State(c): State<Context>, Body(request): Body<FindRequest>) -> Answer<FoundArrays> {
    Answer(
        c.data.ask(move |data| async move { look_for::run(&data.world, &request, &data.served_uuids()).await }).await,
    )
}

pub async fn import(State(c): State<Context>, Body(request): Body<ImportRequest>) -> Answer<Imported> {
    Answer(c.data.ask(move |data| async move { import_and_serve(&data, request).await }).await)
}

pub async fn stop(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let name = data.array(&array)?.array.first().name();
        data.refuse_if_used(&format!("array {name}"), (Some(&name), None), how.force).await?;
        let mut done = Done::new(format!("array {name} is closed and its drives are released"));
        let removed = data.served.borrow_mut().remove(&name);
        if let Some(opened) = removed {
            if opened.volatile {
                done.notes.push("it was in memory: its data is gone".to_owned());
            }
            opened.close(&data.world).await?;
        }
        tracing::info!("{}", done.done);
        Ok(done)
    });
    Answer(ask.await)
}

pub async fn forget(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let known = data.world.registry.find(&array)?;
        if data.served_uuids().contains(&known.uuid) {
            let (what, why) = (format!("array {}", known.name), "it is being served here");
            return Err(Problem::refused("array_served", what, why, "`ashlar export` hands it over to another host"));
        }
        let (done, known) = forgotten::run(&data.world, &array, how.force).await?;
        data.absent.borrow_mut().remove(&known.name);
        tracing::info!("{}", done.done);
        Ok(done)
    });
    Answer(ask.await)
}

pub async fn export(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        if opened.volatile || opened.read_only {
            return handed_over::opened(&data.world, opened).await;
        }
        let name = opened.array.first().name();
        data.refuse_if_used(&format!("array {name}"), (Some(&name), None), how.force).await?;
        data.served.borrow_mut().remove(&opened.array.first().name());
        let done = handed_over::opened(&data.world, opened).await?;
        tracing::info!("{}", done.done);
        Ok(done)
    });
    Answer(ask.await)
}

pub async fn destroy(State(c): State<Context>, Path(array): Path<String>, Query(how): Query<Forced>) -> Answer<Done> {
    let ask = c.data.ask(move |data| async move {
        let opened = data.array(&array)?;
        let name = opened.array.first().name();
        end::may_be_destroyed(&opened)?;
        data.refuse_if_used(&format!("array {name}"), (Some(&name), None), how.force).await?;
        // Out of the list first: no new connection finds its volumes.
        let removed = data.served.borrow_mut().remove(&name);
        let opened = match removed {
            Some(opened) => opened,
            None => data.array(&array)?,
        };
        let done = end::opened(&data.world, opened).await?;
        tracing::info!("{}", done.done);
        Ok(done)
    });
    Answer(ask.await)
}

/// Freed buffers that the calling thread keeps.
fn buffers() -> Buffers {
    let rt::buf::KeptBuffers { bytes, bytes_max, hits, misses } = rt::buf::kept();
    Buffers { bytes, bytes_max, hits, misses }
}
