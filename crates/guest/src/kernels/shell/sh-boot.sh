__belljar_text=$(cat <&4); exec 4<&-; eval "$__belljar_text"
