# Completions of sheaf for bash: source <(sheaf completions bash)
_sheaf() {
    local begun=${COMP_WORDS[COMP_CWORD]} word help
    COMPREPLY=()
    while IFS=$'\t' read -r word help; do
        if [[ $word == :file ]]; then
            compopt -o filenames 2> /dev/null
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$begun")
        else
            COMPREPLY+=("$word")
        fi
    done < <("$1" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
}
complete -F _sheaf sheaf
