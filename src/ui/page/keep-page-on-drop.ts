/**
 * A file that is dropped beside the place that takes it makes browsers leave the page, and so the room: here it is not taken at all.
 *
 * Places that take files prevent the event's default themselves.
 */
export function keepPageOnDrop(target: EventTarget = window): void {
  const refuse = (event: Event) => {
    const { dataTransfer } = event as DragEvent
    if (event.defaultPrevented || !dataTransfer?.types.includes('Files')) return
    if (event.target instanceof HTMLInputElement && event.target.type === 'file') return
    event.preventDefault()
    dataTransfer.dropEffect = 'none'
  }
  target.addEventListener('dragover', refuse)
  target.addEventListener('drop', refuse)
}
