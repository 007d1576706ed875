package nomain
