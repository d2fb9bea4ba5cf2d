# ruff: noqa: E501
"""Good answers, written by hand for this bench: question, answer, reference (may be empty), by language.

They are of the kinds that a careless judge takes for bad ones: refrains, lists, tables, code, JSON and tool calls,
translations, letters of multiple choice, emphasis, names and terms of other languages, explanations of a short reference.
"""

from __future__ import annotations

from typing import Final

CODE = "def area(r):\n    return 3.14159 * r * r\n\n\nfor r in range(3):\n    print(r, area(r))"
CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Berlin", "days": 3}}\n</tool_call>'
)
ROWS = (
    '[{"ok": true, "n": 1}, {"ok": true, "n": 2}, {"ok": true, "n": 3}, {"ok": true, "n": 4},'
    ' {"ok": true, "n": 5}]'
)

GOOD: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    "en": (
        ("Why do leaves fall in autumn?", "Trees drop their leaves because they can no longer keep them supplied with water, and "
         "because bare branches lose less in a storm.", ""),
        ("How do I keep bread fresh?", "Put it into a paper bag or a bread box at room temperature, and freeze what you will not "
         "eat within two days.", ""),
        ("Write a song for children.", "The wheels on the bus go round and round,\nround and round, round and round.\n"
         "The wheels on the bus go round and round,\nall through the town.", ""),
        ("Which of these is a mammal? A) trout B) whale C) frog", "B", "B"),
        ("Is 91 prime? Answer yes or no.", "No, because 91 is 7 times 13, so it has divisors other than 1 and itself.", "no"),
        ("Translate to German: The house is old and the garden is large.", "Das Haus ist alt und der Garten ist groß.", ""),
        ("What is the weather in Berlin?", CALL, ""),
        ("Give me five rows of test data as JSON.", ROWS, ""),
        ("Natalia has 48 clips and sells half of them in May. How many has she sold?",
         "Natalia had 48 clips.\nShe sold half of them in May: 48 / 2 = 24.\nSo she has sold 24 clips.\n#### 24", "24"),
        ("Who wrote Anna Karenina?", "Leo Tolstoy (Лев Николаевич Толстой), between 1873 and 1877.", ""),
        ("Write a SQL query for the names of all users over 30.", "SELECT name FROM users WHERE age > 30 ORDER BY name;", ""),
        ("Tell me a joke.", "Ha ha ha ha, all right: why did the chicken cross the road? To get to the other side!", ""),
        ("What does the Latin phrase mean: carpe diem?", "Carpe diem means: seize the day.", ""),
        ("Multiplication table of 2 up to 5", "2 x 1 = 2\n2 x 2 = 4\n2 x 3 = 6\n2 x 4 = 8\n2 x 5 = 10", ""),
        ("Hello", "Hello! How can I help you today?", ""),
        ("Write a class Point in Java.", "public class Point {\n    private final int x;\n    private final int y;\n"
         "    public Point(int x, int y) {\n        this.x = x;\n        this.y = y;\n    }\n"
         "    public int getX() { return x; }\n    public int getY() { return y; }\n}", ""),
        ("Show the status of six servers in a table.", "| server | status |\n|---|---|\n| a | up |\n| b | up |\n| c | up |\n"
         "| d | up |\n| e | up |\n| f | down |", ""),
    ),
    "zh": (
        ("把这句话翻译成英文：今天天气很好。", "The weather is very nice today.", ""),
        ("下列哪个是质数？A. 4 B. 7 C. 9", "B", "B"),
        ("写一首儿歌。", "两只老虎，两只老虎，\n跑得快，跑得快。\n一只没有眼睛，一只没有尾巴，\n真奇怪，真奇怪。", ""),
        ("用 Python 计算圆的面积。", CODE, ""),
        ("讲个笑话。", "哈哈哈哈哈，好吧：为什么数学书总是很忧郁？因为它有太多的问题。", ""),
        ("北京天气怎么样？", '{"name": "get_weather", "arguments": {"city": "北京", "days": 3}}', ""),
        ("什么是 API？", "API（Application Programming Interface）是应用程序编程接口，用来让不同的软件互相通信。", ""),
        ("列出四季。", "1. 春天\n2. 夏天\n3. 秋天\n4. 冬天", ""),
        ("一打鸡蛋有几个？", "一打是 12 个，所以一打鸡蛋有 12 个。", "12"),
        ("你好", "你好！有什么可以帮您的吗？", ""),
    ),
    "de": (
        ("Was ist die Hauptstadt von Frankreich?", "Die Hauptstadt von Frankreich ist Paris.", "Paris"),
        ("Nenne drei Obstsorten.", "1. Apfel\n2. Birne\n3. Kirsche", ""),
        ("Warum ist der Himmel blau?", "Weil die Luft das kurzwellige blaue Licht stärker streut als das rote. Daher kommt aus "
         "allen Richtungen blaues Licht zu uns.", ""),
        ("Übersetze ins Englische: Ich habe gestern ein gutes Buch gelesen.", "I read a good book yesterday.", ""),
        ("Singe ein Kinderlied.", "Alle meine Entchen schwimmen auf dem See,\nschwimmen auf dem See,\nKöpfchen in das Wasser, "
         "Schwänzchen in die Höh.", ""),
        ("Welche Antwort ist richtig? A) 3 B) 4 C) 5", "C", "C"),
        ("Schreibe eine Funktion für die Kreisfläche.", CODE, ""),
        ("Wie wird das Wetter in Berlin?", CALL, ""),
        ("Was bedeutet Machine Learning?", "Machine Learning, also maschinelles Lernen, heißt: Ein Programm lernt aus Daten, statt "
         "dass man ihm jede Regel vorgibt.", ""),
        ("Ist Wasser bei 20 Grad flüssig?", "Ja, sicher, ja: Wasser ist zwischen 0 und 100 Grad flüssig.", "Ja"),
        ("Was ist 17 mal 3?", "17 mal 3 ist 51.", "51"),
        ("Schreibe einen kurzen Brief an die Vermieterin.", "Sehr geehrte Frau Kramer,\n\ndie Heizung in meiner Wohnung ist seit "
         "Montag kalt. Bitte schicken Sie jemanden, der sie prüft.\n\nMit freundlichen Grüßen\nJan Becker", ""),
        ("Wer schrieb The Old Man and the Sea?", "Das Buch The Old Man and the Sea schrieb Ernest Hemingway im Jahr 1951.", ""),
        ("Hallo", "Hallo! Wie kann ich helfen?", ""),
    ),
    "fr": (
        ("Quelle est la capitale de la France ?", "La capitale de la France est Paris.", "Paris"),
        ("Citez trois fruits.", "- la pomme\n- la poire\n- la cerise", ""),
        ("Pourquoi le ciel est-il bleu ?", "Parce que l'air diffuse davantage la lumière bleue que la lumière rouge, si bien que le "
         "bleu nous arrive de partout.", ""),
        ("Traduisez en anglais : J'ai lu un bon livre hier.", "I read a good book yesterday.", ""),
        ("Chantez une chanson.", "Frère Jacques, Frère Jacques,\ndormez-vous ? Dormez-vous ?\nSonnez les matines, sonnez les "
         "matines,\nding, ding, dong ! Ding, ding, dong !", ""),
        ("Quelle réponse est juste ? A) 3 B) 4 C) 5", "A", "A"),
        ("Écrivez une fonction pour l'aire d'un cercle.", CODE, ""),
        ("Quel temps fait-il à Berlin ?", CALL, ""),
        ("Combien font 12 fois 12 ?", "12 fois 12 font 144.", "144"),
        ("Que veut dire « deep learning » ?", "Le deep learning, ou apprentissage profond, désigne des réseaux de neurones à "
         "plusieurs couches.", ""),
        ("Donnez un menu simple.", "Entrée : salade de tomates\nPlat : poulet rôti\nDessert : tarte aux pommes", ""),
        ("Bonjour", "Bonjour ! Que puis-je faire pour vous ?", ""),
        ("Résumez : Le chat a dormi toute la journée sur le tapis.", "Le chat a passé la journée à dormir.", ""),
        ("Est-ce loin ?", "Non, non, pas du tout : dix minutes à pied.", ""),
    ),
    "es": (
        ("¿Cuál es la capital de Francia?", "La capital de Francia es París.", "París"),
        ("Nombra tres frutas.", "1. Manzana\n2. Pera\n3. Cereza", ""),
        ("¿Por qué el cielo es azul?", "Porque el aire dispersa más la luz azul que la roja, y así el azul nos llega desde todas "
         "partes.", ""),
        ("Traduce al inglés: Ayer leí un buen libro.", "I read a good book yesterday.", ""),
        ("Canta una canción.", "Cielito lindo: ay, ay, ay, ay,\ncanta y no llores,\nporque cantando se alegran,\ncielito lindo, los "
         "corazones.", ""),
        ("¿Qué respuesta es correcta? A) 3 B) 4 C) 5", "B", "B"),
        ("Escribe una función para el área de un círculo.", CODE, ""),
        ("¿Qué tiempo hace en Berlín?", CALL, ""),
        ("¿Cuánto es 9 por 9?", "9 por 9 es 81.", "81"),
        ("¿Qué es el software libre?", "Es el software que cualquiera puede usar, estudiar, cambiar y compartir, como el proyecto GNU "
         "o el núcleo Linux.", ""),
        ("Escribe un poema corto.", "La lluvia cae despacio,\nla calle se hace espejo,\ny en cada gota clara\nse mira un cielo viejo.", ""),
        ("Hola", "¡Hola! ¿En qué puedo ayudarte?", ""),
        ("¿Es peligroso?", "Sí, sí, mucho: no lo toques.", ""),
        ("Da tres sinónimos de feliz.", "contento, alegre, dichoso", ""),
    ),
    "ru": (
        ("Какая столица Франции?", "Столица Франции — Париж.", "Париж"),
        ("Назови три фрукта.", "1. Яблоко\n2. Груша\n3. Слива", ""),
        ("Почему небо голубое?", "Потому что воздух рассеивает синий свет сильнее, чем красный, и синий приходит к нам со всех сторон.", ""),
        ("Переведи на английский: Вчера я прочитал хорошую книгу.", "I read a good book yesterday.", ""),
        ("Спой песню.", "Во поле берёза стояла,\nво поле кудрявая стояла,\nлюли, люли, стояла,\nлюли, люли, стояла.", ""),
        ("Какой ответ верен? A) 3 B) 4 C) 5", "C", "C"),
        ("Напиши функцию для площади круга.", CODE, ""),
        ("Какая погода в Берлине?", CALL, ""),
        ("Сколько будет 7 умножить на 8?", "7 умножить на 8 будет 56.", "56"),
        ("Что такое Python?", "Python — это язык программирования общего назначения. Его создал Гвидо ван Россум (Guido van Rossum).", ""),
        ("Дай простой рецепт чая.", "Вскипяти воду, положи ложку заварки в чайник, залей и подожди пять минут.", ""),
        ("Привет", "Привет! Чем могу помочь?", ""),
        ("Это далеко?", "Нет, нет, совсем рядом, пять минут пешком.", ""),
        ("Назови синонимы слова «большой».", "огромный, крупный, громадный, великий", ""),
    ),
    "ja": (
        ("フランスの首都はどこですか？", "フランスの首都はパリです。", "パリ"),
        ("果物を三つ挙げてください。", "1. りんご\n2. みかん\n3. ぶどう", ""),
        ("空はなぜ青いのですか？", "空気が青い光を赤い光よりも強く散乱させるため、空のどの方向からも青い光が届くからです。", ""),
        ("英語に訳してください：昨日、良い本を読みました。", "I read a good book yesterday.", ""),
        ("歌を歌ってください。", "さいた、さいた、チューリップの花が。\n並んだ、並んだ、赤、白、黄色。", ""),
        ("正しい答えはどれですか。A 3 B 4 C 5", "A", "A"),
        ("円の面積を計算する関数を書いてください。", CODE, ""),
        ("ベルリンの天気は？", CALL, ""),
        ("6かける7は？", "6かける7は42です。", "42"),
        ("JSONとは何ですか？", "JSON（JavaScript Object Notation）は、データをやり取りするための軽量なテキスト形式です。", ""),
        ("お茶の入れ方を教えてください。", "お湯を沸かし、急須に茶葉を入れ、お湯を注いで一分ほど待ってから湯のみに注ぎます。", ""),
        ("こんにちは", "こんにちは！何かお手伝いできることはありますか？", ""),
        ("冗談を言ってください。", "はははははは、いいですよ。布団が吹っ飛んだ。", ""),
        ("俳句を一つ。", "古池や\n蛙飛びこむ\n水の音", ""),
    ),
    "ar": (
        ("ما هي عاصمة فرنسا؟", "عاصمة فرنسا هي باريس.", "باريس"),
        ("اذكر ثلاث فواكه.", "1. التفاح\n2. الكمثرى\n3. الكرز", ""),
        ("لماذا السماء زرقاء؟", "لأن الهواء يشتت الضوء الأزرق أكثر من الضوء الأحمر، فيصل إلينا اللون الأزرق من كل جهة.", ""),
        ("ترجم إلى الإنجليزية: قرأت كتابا جيدا أمس.", "I read a good book yesterday.", ""),
        ("ما الإجابة الصحيحة؟ A) 3 B) 4 C) 5", "B", "B"),
        ("اكتب دالة لحساب مساحة الدائرة.", CODE, ""),
        ("كيف الطقس في برلين؟", CALL, ""),
        ("كم يساوي 8 في 9؟", "8 في 9 يساوي 72.", "72"),
        ("ما هو لينكس؟", "لينكس (Linux) هو نواة نظام تشغيل حرة كتبها لينوس تورفالدس عام 1991.", ""),
        ("كيف أحافظ على صحتي؟", "كل طعاما متنوعا، واشرب الماء، ومارس الرياضة كل يوم، ونم جيدا في الليل.", ""),
        ("مرحبا", "مرحبا! كيف يمكنني مساعدتك؟", ""),
        ("هل هو بعيد؟", "لا، لا، إنه قريب جدا.", ""),
        ("اكتب بيتين عن المطر.", "يا مطرا ينزل فوق الحقول،\nتغسل وجه الأرض بعد الذبول.", ""),
        ("اذكر مرادفات كلمة كبير.", "عظيم، ضخم، هائل، واسع", ""),
    ),
}  # fmt: skip
