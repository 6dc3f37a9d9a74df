def page(x):
    return ""
