// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drivers of NICs are known to do, for what can only be found out by changing a NIC. A
//! driver that does it does so for some of its NICs only.

/// What the driver of a NIC does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// `taprio` with `flags 0x2`.
    pub taprio: bool,
    /// `etf` with `offload`.
    pub etf: bool,
    /// `cbs` with `offload`.
    pub cbs: bool,
    /// XDP in the driver.
    pub xdp: bool,
    /// AF_XDP without a copy.
    pub zero_copy: bool,
}

/// What is known of a driver; `None` when nothing is.
///
/// **Source**: linux v6.12, for each driver where it answers `TC_SETUP_QDISC_TAPRIO`,
/// `TC_SETUP_QDISC_ETF`, `TC_SETUP_QDISC_CBS`, and sets `xdp_features`: `drivers/net/ethernet/`
/// `intel/igb/igb_main.c:igb_setup_tc`, `intel/igc/igc_main.c:igc_tsn_setup_tc` ...,
/// `stmicro/stmmac/stmmac_main.c:stmmac_setup_tc`, `freescale/enetc/enetc.c:enetc_setup_tc`,
/// `ti/am65-cpsw-qos.c:am65_cpsw_qos_ndo_setup_tc`, `engleder/tsnep_tc.c:tsnep_tc_setup`;
/// `drivers/net/veth.c`, `drivers/net/virtio_net.c`.
pub(super) fn of(driver: &str) -> Option<Abilities> {
    let none = Abilities::default();
    let xdp = Abilities { xdp: true, ..none };
    let zero_copy = Abilities { zero_copy: true, ..xdp };
    Some(match driver {
        "igc" => Abilities { taprio: true, etf: true, cbs: true, ..zero_copy },
        "igb" => Abilities { etf: true, cbs: true, ..xdp },
        "stmmac" | "dwmac-intel" | "st_gmac" => {
            Abilities { taprio: true, etf: true, cbs: true, ..zero_copy }
        }
        "fsl_enetc" => Abilities { taprio: true, etf: true, cbs: true, ..xdp },
        "am65-cpsw-nuss" => Abilities { taprio: true, ..xdp },
        "tsnep" => Abilities { taprio: true, ..zero_copy },
        "i40e" | "ice" | "ixgbe" | "mlx5_core" => zero_copy,
        "veth" | "virtio_net" | "ena" | "tun" | "bnxt_en" => xdp,
        "e1000e" | "e1000" | "r8169" | "tg3" | "bridge" | "loopback" | "dummy" => none,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_known_drivers_are_told_from_unknown_ones() {
        assert!(of("igc").is_some_and(|known| known.taprio && known.etf && known.cbs));
        assert!(of("igb").is_some_and(|known| !known.taprio && known.etf));
        assert!(of("veth").is_some_and(|known| known.xdp && !known.etf && !known.zero_copy));
        assert_eq!(of("e1000e"), Some(Abilities::default()));
        assert_eq!(of("a driver to come"), None);
    }
}
