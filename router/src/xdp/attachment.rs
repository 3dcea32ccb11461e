//! The attachments of the program to devices, as the kernel reports them for the pinned links.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;

use crate::xdp::error::{Error, Result};
use crate::xdp::pins::links;
use crate::xdp::sys::{self, XdpState};

/// The way that the program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// In the driver.
    Native,
    /// In the stack, for drivers without XDP: works everywhere, gains little.
    Generic,
}

impl std::fmt::Display for AttachMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AttachMode::Native => "native",
            AttachMode::Generic => "generic",
        })
    }
}

/// A device the program is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// The device.
    pub ifindex: u32,
    /// The way that the program is attached.
    pub mode: AttachMode,
}

impl Attachment {
    /// Whether the program is in the stack, not in the driver.
    pub fn is_generic(&self) -> bool {
        self.mode == AttachMode::Generic
    }
}

/// The attachments of these pins, asked from the kernel.
pub(crate) fn all(pins: &Path) -> Result<Vec<Attachment>> {
    let devices: Vec<u32> = links(pins)?.into_iter().filter_map(|(_, _, device)| device).collect();
    // One request, however many devices there are; without an answer each is asked.
    let states = if devices.len() > 1 { sys::xdp_attached_all().unwrap_or_default() } else { HashMap::new() };
    let attachment =
        |device| states.get(&device).map_or_else(|| attached(device), |state| attachment(device, *state));
    Ok(devices.into_iter().map(attachment).collect())
}

fn attached(ifindex: u32) -> Attachment {
    attachment(ifindex, sys::xdp_attached(ifindex).unwrap_or_default())
}

fn attachment(ifindex: u32, XdpState { generic, .. }: XdpState) -> Attachment {
    Attachment { ifindex, mode: if generic { AttachMode::Generic } else { AttachMode::Native } }
}

/// The attachment of one device by the pin of its link, asked from the kernel.
pub(crate) fn of_link(link: &Path, ifindex: u32) -> Result<Option<Attachment>> {
    let fail = |error| Error::kernel(format!("cannot get the link of device {ifindex}"), error);
    let Some(link) = sys::get(link).map_err(fail)? else { return Ok(None) };
    Ok(sys::link_device(link.as_fd()).map_err(fail)?.filter(|device| *device == ifindex).map(attached))
}
