//! What is wrong with the other side of a handshake, in words that say what to do.

use rustls::{AlertDescription, CertificateError};

/// Why the other side's certificate is refused.
pub(super) fn of_certificate(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::BadSignature => {
            "the other side's certificate is of another authority with the name of this cluster's; were keys of one cluster \
             made twice? Give both sides keys of the same authority (`forebay keys for`)"
        }
        CertificateError::InvalidPurpose
        | CertificateError::InvalidPurposeContext { .. }
        | CertificateError::NotValidForName
        | CertificateError::NotValidForNameContext { .. } => {
            "the other side's key is not a server's; a server needs a key of role mds or ost (`forebay keys for`)"
        }
        CertificateError::BadEncoding => {
            "the other side's certificate is damaged; give it new keys (`forebay keys for`)"
        }
        error => {
            return format!(
                "the other side's certificate is none of Forebay's ({error}); give it keys (`forebay keys for`)"
            );
        }
    };
    words.into()
}

/// Why the other side refuses this one.
pub(super) fn of_alert(alert: AlertDescription) -> String {
    let words = match alert {
        AlertDescription::UnsupportedCertificate => {
            "to the other side this side's key is not a server's; a server needs a key of role mds or ost (`forebay keys for`)"
        }
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown | AlertDescription::AccessDenied => {
            "the other side refuses this side's certificate; its log says why"
        }
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
            "the other side does not speak TLS 1.3 as this side does; install the same release on both"
        }
        alert => return format!("the other side ended the connection ({alert:?}); its log says why"),
    };
    words.into()
}
