//! The cluster's own certificate authority and everything it signs.
//!
//! A real CA with separate leaf certificates: Rust's TLS refuses a self-signed leaf that is used as a CA.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};

use crate::plan::{CONTROL_ADDRESS, Plan, SERVICE_ADDRESS};

const API_SERVER_NAMES: [&str; 5] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
];

/// Who a certificate speaks for.
struct Subject<'a> {
    file: String,
    name: String,
    group: Option<&'a str>,
    dns: &'a [&'a str],
    addresses: Vec<IpAddr>,
}

/// Makes all certificates and keys of the plan.
pub fn make(plan: &Plan) -> Result<()> {
    let folder = plan.pki();
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let authority = authority()?;
    fs::write(folder.join("ca.crt"), authority.pem())?;
    for subject in subjects(plan) {
        sign(&authority, &subject, &folder).with_context(|| format!("certificate for {}", subject.name))?;
    }
    service_account_keys(&folder)
}

fn subjects(plan: &Plan) -> Vec<Subject<'static>> {
    let client = |file: &str, name: &str, group| Subject {
        file: file.to_owned(),
        name: name.to_owned(),
        group,
        dns: &[],
        addresses: Vec::new(),
    };
    let mut subjects = vec![
        Subject {
            file: "apiserver".to_owned(),
            name: "kube-apiserver".to_owned(),
            group: None,
            dns: &API_SERVER_NAMES,
            addresses: vec![
                [127, 0, 0, 1].into(),
                SERVICE_ADDRESS.into(),
                CONTROL_ADDRESS.into(),
            ],
        },
        client("admin", "kubernetes-admin", Some("system:masters")),
        client(
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            Some("system:masters"),
        ),
        client("kube-controller-manager", "system:kube-controller-manager", None),
        client("kube-scheduler", "system:kube-scheduler", None),
    ];
    subjects.extend(plan.nodes.iter().map(|node| Subject {
        file: node.name.clone(),
        name: format!("system:node:{}", node.name),
        group: Some("system:nodes"),
        dns: &[],
        addresses: vec![node.address.into(), [127, 0, 0, 1].into()],
    }));
    subjects
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "migpool-cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?).context("certificate authority")
}

fn sign(authority: &CertifiedIssuer<'static, KeyPair>, subject: &Subject<'_>, folder: &Path) -> Result<()> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, subject.name.as_str());
    if let Some(group) = subject.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    for name in subject.dns {
        params
            .subject_alt_names
            .push(SanType::DnsName((*name).try_into()?));
    }
    params
        .subject_alt_names
        .extend(subject.addresses.iter().copied().map(SanType::IpAddress));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    fs::write(folder.join(format!("{}.crt", subject.file)), certificate.pem())?;
    write_secret(
        &folder.join(format!("{}.key", subject.file)),
        &key.serialize_pem(),
    )
}

/// Service account tokens are signed with ECDSA: the API server takes it, and `ring` makes no RSA keys.
fn service_account_keys(folder: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    fs::write(folder.join("sa.pub"), key.public_key_pem())?;
    write_secret(&folder.join("sa.key"), &key.serialize_pem())
}

/// Writes a file that its owner alone can read.
///
/// # Errors
/// It cannot be written.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let mut file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(file.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, client::WebPkiServerVerifier, client::danger::ServerCertVerifier as _};

    use super::*;
    use crate::plan::Options;

    #[test]
    fn what_the_authority_signs_is_believed_for_its_names_only() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::new(
            folder.path(),
            &Options {
                nodes: 2,
                ..Options::default()
            },
        )
        .unwrap();
        make(&plan).unwrap();

        let load = |name: &str| CertificateDer::from_pem_file(plan.pki_file(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(load("ca.crt")).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let server = WebPkiServerVerifier::builder_with_provider(roots.clone().into(), provider.clone())
            .build()
            .unwrap();
        let believed = |file: &str, name: &str| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            server
                .verify_server_cert(&load(file), &[], &name, &[], UnixTime::now())
                .is_ok()
        };
        assert!(believed("apiserver.crt", "10.99.0.1"));
        assert!(believed("apiserver.crt", "10.96.0.1"));
        assert!(believed("apiserver.crt", "kubernetes.default.svc"));
        assert!(believed("gpu-2.crt", "10.99.2.2"));
        assert!(!believed("gpu-2.crt", "10.99.1.2"));
        let client = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .unwrap();
        assert!(
            client
                .verify_client_cert(&load("admin.crt"), &[], UnixTime::now())
                .is_ok()
        );

        let mode = fs::metadata(plan.pki_file("admin.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            fs::read_to_string(plan.pki_file("sa.pub"))
                .unwrap()
                .starts_with("-----BEGIN PUBLIC KEY")
        );
    }
}
