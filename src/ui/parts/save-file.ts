/** Browsers read a blob some time after the click. units: ms. */
const revokeAfterMs = 60_000

/** Offers what is at `url` as a download, and lets go of it. */
export function saveUrl(url: string, name: string): void {
  const anchor = document.createElement('a')
  anchor.href = url
  anchor.download = name
  anchor.click()
  setTimeout(() => URL.revokeObjectURL(url), revokeAfterMs)
}

export function saveText(text: string, type: string, name: string): void {
  saveUrl(URL.createObjectURL(new Blob([text], { type })), name)
}
