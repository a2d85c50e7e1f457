/** The query of an experiment in which ranks disagree: three in one tab, each on its own part, without an exchange. */
export const apartQuery = 'ranks=3&strategy=alone&partition=own-slice'

/** Opens a room of the demo with that experiment; this tab stays in its own. */
export const ApartLink = ({ demo }: { demo: string }) => (
  <a href={`?demo=${demo}&${apartQuery}`} target="_blank" rel="noopener">
    open a room with three such ranks
  </a>
)
