"""How far short runs rank configs as long ones do, measured on a menu of one's own."""
