/**
 * The physical numbers of the devices that the text of the switch `visibleDevices` leaves visible, in their new order, where there are `count` of them.
 *
 * As CUDA_VISIBLE_DEVICES: those from the first on that does not exist are left out. Null: all are visible.
 */
export function visibleNumbers(visible: string | null, count: number): number[] {
  if (visible === null) return Array.from({ length: count }, (_, i) => i)
  const numbers = visible === '' ? [] : visible.split(',').map(Number)
  const end = numbers.findIndex((number) => number < 0 || number >= count)
  return end === -1 ? numbers : numbers.slice(0, end)
}
