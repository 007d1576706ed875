#!/bin/sh
# Makes digest.h of what nvcc has made of digest.cu: without comments, and for
# drivers since CUDA 10 and GPUs since Pascal, which have all that it uses.
echo '/* Made by digest.sh from digest.cu. */'
echo 'static const char digest_ptx[] ='
sed -e 's|//.*||' -e 's/^\.version.*/.version 6.3/' -e 's/^\.target.*/.target sm_60/' -e 's/_ZZ12cairn_digestE4//' -e 's/[[:space:]]*$//' -e '/^$/d' -e 's/"/\\"/g' -e 's/^[[:space:]]*//' -e 's/[[:space:]][[:space:]]*/ /g' -e 's/.*/"&\\n"/' "$1"
echo ';'
