"""Drawing shared by all figures: colors, sizes, SVG and PNG output."""
