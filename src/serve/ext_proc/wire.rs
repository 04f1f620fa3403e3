//! The messages of the wire, made from `proto/`.

#![expect(missing_docs, reason = "generated; Envoy's API documents them")]
#![allow(clippy::all, unreachable_pub, missing_debug_implementations)]

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                tonic::include_proto!("envoy.config.core.v3");
            }
        }
    }
    pub mod extensions {
        pub mod filters {
            pub mod http {
                pub mod ext_proc {
                    pub mod v3 {
                        tonic::include_proto!("envoy.extensions.filters.http.ext_proc.v3");
                    }
                }
            }
        }
    }
    pub mod service {
        pub mod ext_proc {
            pub mod v3 {
                tonic::include_proto!("envoy.service.ext_proc.v3");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            tonic::include_proto!("envoy.r#type.v3");
        }
    }
}

pub mod grpc {
    pub mod health {
        pub mod v1 {
            tonic::include_proto!("grpc.health.v1");
        }
    }
}

pub use envoy::config::core::v3::header_value_option::HeaderAppendAction;
pub use envoy::config::core::v3::{HeaderMap, HeaderValue, HeaderValueOption, LazyStruct, Metadata};
pub use envoy::extensions::filters::http::ext_proc::v3::ProcessingMode;
pub use envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
pub use envoy::service::ext_proc::v3::*;
pub use envoy::r#type::v3::HttpStatus;
