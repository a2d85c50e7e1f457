/** A story about tabs in a ring, written for this demo: short words and lines that come again, so that a small model gets far. */
export const story = `Once there was a tab, and the tab was alone. It had a page, and it read the page all day. It read a line, and it made a guess, and the guess was wrong. So it read the line again.

"I am a small tab," said the tab, "and the page is long. If there were two of us, we could read twice as much."

Then the first friend came. The friend was a red tab. "Hello, small tab," said the red tab. "May I sit in your ring?" "You may sit in my ring," said the small tab, "if you read a part of the page, and if you tell me what you learn." So the red tab sat in the ring. The small tab read a part, and the red tab read a part, and each told the other what it had learned.

Then the second friend came. The friend was a blue tab. "Hello, small tab. Hello, red tab," said the blue tab. "May I sit in your ring?" "You may sit in our ring," said the small tab, "if you read a part of the page, and if you tell us what you learn." So the blue tab sat in the ring. The small tab read a part, and the red tab read a part, and the blue tab read a part, and each told the next what it had learned.

Then the third friend came. The friend was a green tab. "Hello, small tab. Hello, red tab. Hello, blue tab," said the green tab. "May I sit in your ring?" "You may sit in our ring," said the small tab, "if you read a part of the page, and if you tell us what you learn." So the green tab sat in the ring. The small tab read a part, and the red tab read a part, and the blue tab read a part, and the green tab read a part, and each told the next what it had learned.

Round the ring and round the ring the little numbers ran. The small tab gave them to the red tab, and the red tab gave them to the blue tab, and the blue tab gave them to the green tab, and the green tab gave them to the small tab. When they had run all the way round, every tab knew the same, and not one tab knew more than the other.

In the morning the wind came. "I will blow the ring away," said the wind. The wind blew and blew, but the tabs held on. The small tab held the red tab, and the red tab held the blue tab, and the blue tab held the green tab, and the green tab held the small tab. So the wind went home, and the ring was still a ring.

In the evening the rain came. "I will wash the ring away," said the rain. The rain fell and fell, but the tabs held on. The small tab held the red tab, and the red tab held the blue tab, and the blue tab held the green tab, and the green tab held the small tab. So the rain went home, and the ring was still a ring.

In the night the dark came. "I will hide the ring away," said the dark. And the dark was so dark that the red tab went to sleep. "Where is the red tab?" said the blue tab. "Where is the red tab?" said the green tab. "The red tab is asleep," said the small tab. "We will wait a little, and then we will go on without it." So they waited a little, and then they went on without it, and the ring was a smaller ring.

In the morning the sun came. "Wake up, red tab," said the sun. The red tab woke up, and it said, "May I sit in your ring?" "You may sit in our ring," said the small tab, "and we will tell you what we have learned." So the red tab sat in the ring, and they told it what they had learned, and the ring was a ring of four again.

Round the ring and round the ring the little numbers ran. They ran from the small tab to the red tab, and from the red tab to the blue tab, and from the blue tab to the green tab, and from the green tab to the small tab. With every round the guess was a better guess, and with every round the page was a shorter page.

Then an old tab came, a slow old tab. "Hello, small tab. Hello, red tab. Hello, blue tab. Hello, green tab," said the old tab. "I am slow, and I am old. May I sit in your ring?" "You may sit in our ring," said the small tab. "If you are slow, you will read a small part, and we will read a large part, and no one will wait for long." So the old tab sat in the ring, and it read a small part, and no one waited for long.

One day they came to the end of the page. "I know what the next line says," said the red tab. "I know what the next line says," said the blue tab. "I know what the next line says," said the green tab. "So do I," said the old tab. And the small tab said, "We all know the same, and we all know what the next line says. When I was alone, the page was long. Now we are a ring, and the page is short."

Then the wind came, and the rain came, and the dark came, and they all sat down around the ring. "Read us the page," said the wind. "Read us the page," said the rain. "Read us the page," said the dark. So the tabs read the page to the wind and the rain and the dark, and each tab read a part, and each part was a good part. The small tab read a part, and the red tab read a part, and the blue tab read a part, and the green tab read a part, and the old tab read a part.

"That was a good page," said the wind. "That was a good page," said the rain. "That was a good page," said the dark. And when the sun came in the morning, the tabs sat in the ring, and the little numbers ran round the ring and round the ring, and the ring was still a ring.
`
