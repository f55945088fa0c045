"""Stories as text: who says what and when, and what is answered. A newcomer can read them."""
