/**
 * Returns the outline of the pixels from number `start` up to `end` of a picture, counted row by row, as the data of an SVG path with one
 * unit a pixel: a rectangle, or one with a step in its upper and its lower edge.
 */
export function outlineOf(start: number, end: number, width: number): string {
  const [firstRow, firstColumn] = [Math.floor(start / width), start % width]
  const [lastRow, lastColumn] = [Math.floor(end / width), end % width]
  if (firstRow === lastRow)
    return `M${firstColumn} ${firstRow}H${lastColumn}V${firstRow + 1}H${firstColumn}Z`
  const below = lastColumn === 0 ? 'H0' : `H${lastColumn}V${lastRow + 1}H0`
  return `M${firstColumn} ${firstRow}H${width}V${lastRow}${below}V${firstRow + 1}H${firstColumn}Z`
}
