//! The OpenAPI document: made of the routes and the types.

use api::{Kind, ProblemBody, Role};
use utoipa::openapi::{
    Components, ContentBuilder, Info, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Response, ResponseBuilder,
    extensions::ExtensionsBuilder,
    security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::{Context, routes};

const ABOUT: &str = "Arrays of NVMe drives. Sizes are bytes, times seconds. Enumerations are open: a client must take \
                     a value that it does not know. A problem is told as application/problem+json, with a code for \
                     scripts, and with what, why and what to do for people.";

/// The name of the scheme.
const TOKEN: &str = "token";

/// The document.
#[must_use]
pub fn openapi() -> OpenApi {
    finished(routes().into_openapi())
}

/// Its beginning.
pub fn heading() -> OpenApi {
    let mut info = Info::new("Ashlar", env!("CARGO_PKG_VERSION"));
    info.description = Some(ABOUT.to_owned());
    let (name, schema) = (ProblemBody::name(), ProblemBody::schema());
    let mut more = vec![];
    ProblemBody::schemas(&mut more);
    let mut components = Components::new();
    components.schemas.insert(name.into_owned(), schema);
    // Of what is flattened the macro names the fields, and not their types.
    components.schemas.insert(Kind::name().into_owned(), Kind::schema());
    components.schemas.extend(more);
    // Over TCP a token; over the unix socket the kernel says who it is.
    let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    components.add_security_scheme(TOKEN, token);
    let security = [SecurityRequirement::new(TOKEN, Vec::<String>::new()), SecurityRequirement::default()];
    OpenApiBuilder::new().info(info).components(Some(components)).security(Some(security)).build()
}

/// Notes which role these requests need.
pub fn role(router: OpenApiRouter<Context>, role: Role) -> OpenApiRouter<Context> {
    let mut router = router;
    for item in router.get_openapi_mut().paths.paths.values_mut() {
        for operation in operations(item) {
            operation.extensions = Some(ExtensionsBuilder::new().add("x-role", role.word()).build());
        }
    }
    router
}

/// The document with what holds for every request.
pub fn finished(mut document: OpenApi) -> OpenApi {
    for item in document.paths.paths.values_mut() {
        for operation in operations(item) {
            operation.responses.responses.insert("default".to_owned(), RefOr::T(problem()));
        }
    }
    document
}

fn problem() -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemBody::name()))).build();
    ResponseBuilder::new().description("A problem").content("application/problem+json", content).build()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}
