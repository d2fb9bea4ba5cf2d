"""Finding the page that a user needs: rules, known messages, guides and commands, searched by the user's own words."""
