# Completions of sheaf for fish: sheaf completions fish > ~/.config/fish/completions/sheaf.fish
function __sheaf_offered
    set -l words (commandline -opc)
    set -l begun (commandline -ct)
    for line in ($words[1] complete -- $words[2..-1] "$begun" 2> /dev/null)
        if test "$line" = :file
            __fish_complete_path "$begun"
        else
            echo $line
        end
    end
end
complete -c sheaf -f -a '(__sheaf_offered)'
