"""The tests of Penstock; see STYLE.md, section 6, for what lives in which folder."""
