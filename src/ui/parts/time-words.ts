// Made once: making one takes longer than all else that a row of the table says.
const timeOfDay = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' })
const dayAndMonth = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' })

/** When something was: the time of a day that is today's, else the day too. */
export function timeWords(atMs: number, nowMs: number): string {
  const at = new Date(atMs)
  const time = timeOfDay.format(at)
  if (at.toDateString() === new Date(nowMs).toDateString()) return time
  return `${dayAndMonth.format(at)} ${time}`
}
