/** The arrow at the end of lines with `marker-end="url(#head)"`; in the `defs` of a drawing. */
export const ArrowHead = () => (
  <marker
    id="head"
    viewBox="0 0 8 8"
    refX="6"
    refY="4"
    markerWidth="7"
    markerHeight="7"
    orient="auto"
    markerUnits="userSpaceOnUse"
  >
    {/* The attribute is for browsers without context-stroke. */}
    <path fill="#808a90" d="M0.5 0.5L7 4L0.5 7.5z" />
  </marker>
)
