#compdef sheaf
# Completions of sheaf for zsh: sheaf completions zsh > a folder of $fpath, as _sheaf
_sheaf() {
    local -a offered
    local line
    for line in ${(f)"$(${words[1]} complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)"}; do
        if [[ $line == :file ]]; then
            _files
        else
            offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( ${#offered} )) && _describe -V sheaf offered
}
if [[ $funcstack[1] == _sheaf ]]; then
    _sheaf "$@"
else
    compdef _sheaf sheaf
fi
