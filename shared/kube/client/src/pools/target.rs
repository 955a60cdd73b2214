use http::{
    HeaderValue, Request, Uri, header,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::{ConfigError, config::redacted};

/// The address of the server, to which the paths of requests are added.
#[derive(Debug)]
pub(super) struct Target {
    scheme: Scheme,
    authority: Authority,
    host_header: HeaderValue,
    /// The path prefix of the server, without a trailing slash.
    prefix: Box<str>,
}

impl Target {
    pub(super) fn of(server: &Uri) -> Result<Self, ConfigError> {
        let refused = || ConfigError::Server(redacted(&server.to_string()));
        let scheme = server.scheme().filter(|it| **it == Scheme::HTTP || **it == Scheme::HTTPS).ok_or_else(refused)?;
        let given = server.authority().filter(|it| !it.host().is_empty()).ok_or_else(refused)?;
        // Kubernetes ignores user and password in the server's URL, and they must not be sent in `:authority`.
        let bare = given.as_str().rsplit('@').next().unwrap_or_default();
        let authority = Authority::try_from(bare).map_err(|_| refused())?;
        let host_header = HeaderValue::try_from(bare).map_err(|_| refused())?;
        let prefix = server.path().trim_end_matches('/').into();
        Ok(Self { scheme: scheme.clone(), authority, host_header, prefix })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The host, without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        self.authority.host().trim_matches(['[', ']'])
    }

    /// The address to connect to, with an explicit port.
    pub(super) fn address(&self) -> Result<Uri, http::Error> {
        let port = self.authority.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 });
        let authority = format!("{}:{port}", self.authority.host());
        Uri::builder().scheme(self.scheme.clone()).authority(authority).path_and_query("/").build()
    }

    /// HTTP/2 has the server in the URL.
    pub(super) fn set_absolute_uri<B>(&self, request: &mut Request<B>) -> Result<(), http::Error> {
        let path = self.path(request.uri());
        *request.uri_mut() = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()?;
        Ok(())
    }

    /// HTTP/1.1 has the server in a header.
    pub(super) fn set_relative_uri<B>(&self, request: &mut Request<B>) -> Result<(), http::Error> {
        *request.uri_mut() = Uri::builder().path_and_query(self.path(request.uri())).build()?;
        request.headers_mut().insert(header::HOST, self.host_header.clone());
        Ok(())
    }

    fn path(&self, uri: &Uri) -> String {
        format!("{}{}", self.prefix, uri.path_and_query().map_or("/", PathAndQuery::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_the_server_is_a_prefix_and_its_name_is_unchanged() {
        let target = Target::of(&"https://me@[fd00::1]:6443/k8s/".parse().unwrap()).unwrap();
        assert_eq!(target.host(), "fd00::1");
        assert_eq!(target.address().unwrap(), "https://[fd00::1]:6443/");
        let mut request = Request::get("/api/v1/pods?limit=1").body(()).unwrap();
        target.set_relative_uri(&mut request).unwrap();
        assert_eq!(request.uri(), "/k8s/api/v1/pods?limit=1");
        assert_eq!(request.headers()[header::HOST], "[fd00::1]:6443");
        let mut request = Request::get("/api").body(()).unwrap();
        target.set_absolute_uri(&mut request).unwrap();
        assert_eq!(request.uri(), "https://[fd00::1]:6443/k8s/api");
    }

    #[test]
    fn default_port_depends_on_the_scheme() {
        for (server, address) in [("https://a", "https://a:443/"), ("http://a/", "http://a:80/")] {
            assert_eq!(Target::of(&server.parse().unwrap()).unwrap().address().unwrap(), address);
        }
        assert!(Target::of(&"/only/a/path".parse().unwrap()).is_err());
        let refused = Target::of(&"ftp://user:canary@host".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("ftp://CLASSIFIED@host") && !refused.contains("canary"), "{refused}");
    }
}
